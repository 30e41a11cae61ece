#include "ps/parameter_store.h"

#include <algorithm>

#include "core/status.h"
#include "device/device_manager.h"
#include "runtime/variable_name.h"
#include "runtime/variable_storage.h"

namespace tandem::ps {

// A variable. Its functions are called with `mutex` held.
class ParameterStore::Entry final : public Resource {
 public:
  Entry(std::string name, const Tensor& value)
      : name_(std::move(name)), spec_(impl_of(value)), storage_(make_storage(value)) {}

  const void* identity() const override { return this; }
  const std::string& name() const override { return name_; }
  Device& device() const override { return storage_->home(0); }
  const TensorSpec& spec() const override { return spec_; }
  Tensor value() override { return storage_->value(0); }
  Tensor writable() override { return storage_->writable(0); }
  void store(const Tensor& value) { storage_->store(0, value); }

  void check(const TensorSpec& spec, const char* what) const {
    if (spec.dtype == spec_.dtype && spec.shape == spec_.shape) return;
    fail<InvalidArgumentError>(
        "[ParameterServer] expected {} of shape {} and dtype {} for variable {}, got {} and {}",
        what, spec_.shape.to_string(), name_of(spec_.dtype), quoted_name(name_, spec_),
        spec.shape.to_string(), name_of(spec.dtype));
  }

  std::mutex mutex;
  std::uint64_t version = 0;

 private:
  static std::unique_ptr<VariableStorage> make_storage(const Tensor& value) {
    Device* const host = &DeviceManager::get().host();
    return copy_per_replica(value, {&host, 1}, false, MemoryTag::kWeights);
  }

  std::string name_;
  TensorSpec spec_;
  std::unique_ptr<VariableStorage> storage_;
};

struct ParameterStore::Update {
  std::vector<RefPtr<Entry>> entries;  // in the order of their ids
  RefPtr<Entry> first;                 // the first variable of the operation
  std::unique_ptr<PartProgram> program;
  std::set<std::uint64_t> closures;  // which have applied it

  // Locks all variables, in the same order for all updates.
  std::vector<std::unique_lock<std::mutex>> lock() const {
    std::vector<std::unique_lock<std::mutex>> locks;
    for (const auto& entry : entries) locks.emplace_back(entry->mutex);
    return locks;
  }
};

ParameterStore::ParameterStore() = default;
ParameterStore::~ParameterStore() = default;

void ParameterStore::create(VariableId id, const std::string& name, const Tensor& value) {
  RefPtr<Entry> made = make_ref<Entry>(name, value);
  const std::lock_guard lock(mutex_);
  const auto [at, added] = entries_.try_emplace(id, std::move(made));
  if (added) return;
  const TensorSpec& spec = at->second->spec();
  if (spec.dtype != value.dtype() || spec.shape != value.shape())
    fail<AlreadyExistsError>(
        "[ParameterServer] variable {} exists with shape {} and dtype {}, and was created again "
        "with {} and {}",
        id, spec.shape.to_string(), name_of(spec.dtype), value.shape().to_string(),
        name_of(value.dtype()));
}

void ParameterStore::remove(VariableId id) {
  const std::lock_guard lock(mutex_);
  entries_.erase(id);
}

RefPtr<ParameterStore::Entry> ParameterStore::entry(VariableId id) const {
  const std::shared_lock lock(mutex_);
  const auto found = entries_.find(id);
  if (found == entries_.end())
    fail<NotFoundError>("[ParameterServer] there is no variable {} here", id);
  return found->second;
}

ParameterStore::Read ParameterStore::read(VariableId id) const {
  const RefPtr<Entry> found = entry(id);
  const std::lock_guard lock(found->mutex);
  return {found->value(), found->version};
}

void ParameterStore::assign(VariableId id, const Tensor& value) {
  const RefPtr<Entry> found = entry(id);
  found->check(impl_of(value), "a value");
  const std::lock_guard lock(found->mutex);
  found->store(value);
  ++found->version;
}

void ParameterStore::add_update(std::uint64_t function, std::uint32_t index,
                                const proto::Part& part) {
  auto made = std::make_shared<Update>();
  std::map<VariableId, RefPtr<Entry>> used;
  made->program = std::make_unique<PartProgram>(
      part, [&](VariableId id, const TensorSpec& spec) -> RefPtr<Resource> {
        const RefPtr<Entry> found = entry(id);
        found->check(spec, "an update");
        used.emplace(id, found);
        if (!made->first) made->first = found;
        return found;
      });
  if (!made->first)
    fail<InvalidArgumentError>("[ParameterServer] update '{}' writes no variable", part.name());
  for (auto& [id, found] : used) made->entries.push_back(std::move(found));
  const std::lock_guard lock(mutex_);
  updates_.try_emplace({function, index}, std::move(made));
}

std::shared_ptr<ParameterStore::Update> ParameterStore::update(std::uint64_t function,
                                                               std::uint32_t index) const {
  const std::shared_lock lock(mutex_);
  const auto found = updates_.find({function, index});
  if (found == updates_.end())
    fail<NotFoundError>("[ParameterServer] update {} of function {} is not known here", index,
                        function);
  return found->second;
}

ParameterStore::Applied ParameterStore::apply(std::uint64_t function, std::uint32_t index,
                                              std::uint64_t closure, std::span<const Tensor> inputs,
                                              std::span<const proto::RunAttributes> attributes) {
  const std::shared_ptr<Update> found = update(function, index);
  const auto locks = found->lock();
  const std::uint64_t finished = finished_below_.load();
  found->closures.erase(found->closures.begin(), found->closures.lower_bound(finished));
  Applied result{.version = found->first->version};
  if (closure < finished || found->closures.contains(closure)) {
    result.repeated = true;
    return result;
  }
  std::vector<Tensor> none;
  found->program->run(inputs, attributes, none);
  found->closures.insert(closure);
  for (const auto& entry : found->entries) ++entry->version;
  return result;
}

void ParameterStore::finish_below(std::uint64_t closure) {
  std::uint64_t before = finished_below_.load();
  while (before < closure && !finished_below_.compare_exchange_weak(before, closure)) {
  }
}

std::size_t ParameterStore::num_variables() const {
  const std::shared_lock lock(mutex_);
  return entries_.size();
}

std::size_t ParameterStore::num_remembered() const {
  const std::shared_lock lock(mutex_);
  std::size_t count = 0;
  for (const auto& [id, update] : updates_) {
    const auto locks = update->lock();
    count += update->closures.size();
  }
  return count;
}

}  // namespace tandem::ps
