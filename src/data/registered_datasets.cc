// Datasets by name.
#include "tandem/registered_datasets.h"

#include <map>
#include <mutex>

#include "core/mutex.h"
#include "core/status.h"
#include "data/description.h"
#include "data/no_variables.h"
#include "data/splitmix.h"

namespace tandem::data {
namespace {

class Registry {
 public:
  static Registry& get() {
    static auto& registry = *new Registry;
    return registry;
  }
  void add(const std::string& name, DatasetFn make) {
    const std::lock_guard lock(mutex_);
    if (!functions_.try_emplace(name, std::move(make)).second)
      fail<AlreadyExistsError>("[register_dataset] a dataset '{}' is registered already", name);
  }
  // Empty if there is none.
  DatasetFn find(const std::string& name) const {
    const std::lock_guard lock(mutex_);
    const auto found = functions_.find(name);
    return found == functions_.end() ? DatasetFn() : found->second;
  }

 private:
  mutable std::mutex mutex_;  // guards the following
  const HeldAtFork held_at_fork_{mutex_};
  std::map<std::string, DatasetFn> functions_;
};

// Throws NotFoundError.
DatasetFn registered_fn(const std::string& name) {
  DatasetFn found = Registry::get().find(name);
  if (!found)
    fail<NotFoundError>(
        "[registered_dataset] no dataset '{}' is registered in this program: call "
        "data::register_dataset() first; a program that only refers to it passes its element_spec",
        name);
  return found;
}

// A dataset that a registered function has made, or makes when it is first needed. Its pipeline is
// at one place of the pipeline that uses it: a change of that one's places is mixed into all seeds.
class RegisteredNode final : public DatasetNode {
 public:
  RegisteredNode(std::string name, std::vector<ComponentSpec> spec)
      : DatasetNode(0),
        name_(std::move(name)),
        spec_(std::move(spec)),
        own_(std::make_shared<Own>()) {}
  // It was made, and stays at its place.
  RegisteredNode(std::string name, NodePtr made, std::uint64_t place)
      : DatasetNode(0), name_(std::move(name)), place_(place), placed_(at_place(made)) {}
  StreamPtr<Example> elements(std::uint64_t epoch) const override { return made().elements(epoch); }
  std::int64_t cardinality() const override {
    return is_here() ? made().cardinality() : kUnknownCardinality;
  }
  Spec spec() const override {
    if (!spec_.empty()) return spec_;
    return is_here() ? made().spec() : std::nullopt;
  }
  NodePtr shard_files(const FileShard& shard) const override { return made().shard_files(shard); }
  AutoShardPolicy auto_shard_policy() const override {
    return is_here() ? made().auto_shard_policy() : AutoShardPolicy::kAuto;
  }
  const RowSource* rows() const override { return stays() ? placed_->rows() : nullptr; }
  StreamPtr<std::int64_t> indices(std::uint64_t epoch) const override {
    return made().indices(epoch);
  }
  bool is_random() const override { return !stays(); }
  std::uint64_t hidden() const override {
    std::uint64_t number = 1;
    for (const char letter : name_) number = mix(number, static_cast<unsigned char>(letter));
    return number;
  }
  NodePtr moved(std::vector<NodePtr>, const PlaceChange& change) const override {
    auto moved = std::make_shared<RegisteredNode>(name_, spec_);
    moved->worker_ = worker_;
    moved->own_ = own_;
    moved->place_ = mix(mix(place_, static_cast<std::uint64_t>(change.offset) + 1), change.source);
    return moved;
  }
  proto::Stage describe(StageWriter& writer) const override {
    proto::Stage stage = writer.stage();
    stage.mutable_registered()->set_name(name_);
    stage.mutable_registered()->set_place(place_);
    return stage;
  }

 private:
  // The result of the function's only call, for all places.
  struct Own {
    Mutex mutex{"registered_dataset"};
    NodePtr made;
  };

  bool stays() const { return !own_; }
  bool is_here() const { return Registry::get().find(name_) != nullptr; }
  const DatasetNode& made() const {
    if (stays()) return *placed_;
    const std::lock_guard lock(own_->mutex);
    if (!own_->made) {
      const Scoped seeds(context.worker, worker_);
      own_->made = call_dataset_fn(registered_fn(name_), {}).node();
    }
    if (!placed_) placed_ = at_place(own_->made);
    return *placed_;
  }
  NodePtr at_place(const NodePtr& made) const {
    return place_ == 0 ? made : at_other_places(made, {.source = place_});
  }

  std::string name_;
  std::vector<ComponentSpec> spec_;
  std::uint64_t worker_ = context.worker;  // of the dataset that uses it
  std::uint64_t place_ = 0;                // 0: as the pipeline is by itself
  std::shared_ptr<Own> own_;               // null if it stays; guards the following
  mutable NodePtr placed_;
};

}  // namespace

NodePtr registered_node(const proto::Stage::Registered& message,
                        const distribute::InputContext& input) {
  const Scoped seeds(context.worker, message.worker());
  return std::make_shared<RegisteredNode>(
      message.name(), call_dataset_fn(registered_fn(message.name()), input).node(),
      message.place());
}

Dataset call_dataset_fn(const DatasetFn& make, const distribute::InputContext& context) {
  const PipelineScope scope;
  const NoVariablesScope no_variables;
  Dataset dataset = make(context);
  if (!dataset.defined())
    fail<InvalidArgumentError>(
        "[Dataset] expected the function of a dataset to return one, got an undefined dataset");
  return dataset;
}

void register_dataset(const std::string& name, DatasetFn make) {
  if (name.empty())
    fail<InvalidArgumentError>("[register_dataset] expected a name, got an empty one");
  if (!make)
    fail<InvalidArgumentError>("[register_dataset] expected a function for '{}', got an empty one",
                               name);
  Registry::get().add(name, std::move(make));
}

Dataset registered_dataset(const std::string& name, std::vector<ComponentSpec> element_spec) {
  if (name.empty())
    fail<InvalidArgumentError>("[registered_dataset] expected a name, got an empty one");
  for (const ComponentSpec& component : element_spec)
    if (!component.shape.known())
      fail<InvalidArgumentError>(
          "[registered_dataset] expected shapes of known rank, got an unknown one for '{}'", name);
  return Dataset(std::make_shared<RegisteredNode>(name, std::move(element_spec)));
}

}  // namespace tandem::data

std::int64_t tandem::distribute::InputContext::get_per_replica_batch_size(
    std::int64_t global_batch_size) const {
  if (global_batch_size % num_replicas_in_sync != 0)
    fail<InvalidArgumentError>(
        "[InputContext] expected a global batch size that {} replicas divide, got {}",
        num_replicas_in_sync, global_batch_size);
  return global_batch_size / num_replicas_in_sync;
}
