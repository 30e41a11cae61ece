#include "ps/parameter_store.h"

#include <algorithm>
#include <utility>

#include "core/log.h"
#include "core/status.h"
#include "device/device_manager.h"
#include "ps/rows.h"
#include "ps/tensor_message.h"
#include "runtime/variable_name.h"
#include "runtime/variable_storage.h"
#include "tandem/array.h"

namespace tandem::ps {

// A variable. Its functions are called with `mutex` held.
class ParameterStore::Entry final : public Resource {
 public:
  Entry(std::string name, const Tensor& value)
      : name_(std::move(name)), spec_(impl_of(value)), storage_(make_storage(value)) {}

  const void* identity() const override { return this; }
  const std::string& name() const override { return name_; }
  Device& device() const override { return storage_->home(0); }
  const TensorType& spec() const override { return spec_; }
  Tensor value() override { return storage_->value(0); }
  Tensor writable() override { return storage_->writable(0); }
  void store(const Tensor& value) { storage_->store(0, value); }

  void check(const TensorType& spec, const char* what) const {
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
  TensorType spec_;
  std::unique_ptr<VariableStorage> storage_;
};

struct ParameterStore::Update {
  std::vector<RefPtr<Entry>> entries;  // in the order of their ids
  RefPtr<Entry> first;                 // the first variable of the operation
  proto::Part part;
  std::unique_ptr<UpdateProgram> program;
  std::set<std::uint64_t> closures;  // which have applied it

  // Locks all variables, in the same order for all updates.
  std::vector<std::unique_lock<std::mutex>> lock() const {
    std::vector<std::unique_lock<std::mutex>> locks;
    for (const auto& entry : entries) locks.emplace_back(entry->mutex);
    return locks;
  }
};

template <class F>
void ParameterStore::note(const F& fill, std::span<const Tensor> tensors) const {
  if (!log_) return;
  proto::JournalRecord record;
  fill(record);
  rpc::Message message;
  for (const Tensor& tensor : tensors) {
    const proto::TensorSpec spec = attach(tensor, message);
    if (record.has_variable())
      *record.mutable_variable()->mutable_spec() = spec;
    else if (record.has_assigned())
      *record.mutable_assigned()->mutable_spec() = spec;
    else
      *record.mutable_applied()->add_inputs() = spec;
  }
  log_->append(record, std::move(message.attachments));
}

ParameterStore::ParameterStore() = default;
ParameterStore::~ParameterStore() = default;

void ParameterStore::create(VariableId id, const std::string& name, const Tensor& value) {
  RefPtr<Entry> made = make_ref<Entry>(name, value);
  const std::shared_lock changing(changing_);
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(id);
  if (found == entries_.end()) {
    note(
        [&](proto::JournalRecord& record) {
          record.mutable_variable()->set_id(id);
          record.mutable_variable()->set_name(name);
        },
        {&value, 1});
    entries_.emplace(id, std::move(made));
    return;
  }
  const TensorType& spec = found->second->spec();
  if (spec.dtype != value.dtype() || spec.shape != value.shape())
    fail<AlreadyExistsError>(
        "[ParameterServer] variable {} exists with shape {} and dtype {}, and was created again "
        "with {} and {}",
        id, spec.shape.to_string(), name_of(spec.dtype), value.shape().to_string(),
        name_of(value.dtype()));
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

ParameterStore::Read ParameterStore::read_rows(VariableId id, const Tensor& numbers) const {
  const RefPtr<Entry> found = entry(id);
  const TensorType& spec = found->spec();
  row_numbers(numbers, spec.shape.rank() > 0 ? spec.shape[0] : 0,
              "ParameterServer: variable " + quoted_name(found->name(), spec));
  const EagerOnHost eager;
  const std::lock_guard lock(found->mutex);
  return {gather(found->value(), numbers), found->version};
}

void ParameterStore::assign(VariableId id, const Tensor& value) {
  const RefPtr<Entry> found = entry(id);
  found->check(impl_of(value), "a value");
  const std::shared_lock changing(changing_);
  const std::lock_guard lock(found->mutex);
  note([&](proto::JournalRecord& record) { record.mutable_assigned()->set_id(id); }, {&value, 1});
  found->store(value);
  ++found->version;
}

void ParameterStore::remove(VariableId id) {
  RefPtr<Entry> last;  // its memory is freed after the lock
  const std::shared_lock changing(changing_);
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(id);
  if (found == entries_.end()) return;
  note([&](proto::JournalRecord& record) { record.set_removed_variable(id); });
  last = std::move(found->second);
  entries_.erase(found);
}

void ParameterStore::add_update(std::uint64_t function, std::uint32_t index,
                                const proto::Part& part) {
  auto made = std::make_shared<Update>();
  std::map<VariableId, RefPtr<Entry>> used;
  made->program = std::make_unique<UpdateProgram>(
      part, [&](std::span<const Shard> shards, const TensorType& spec) -> RefPtr<Resource> {
        if (shards.size() != 1)
          fail<InvalidArgumentError>(
              "[ParameterServer] update '{}' writes {} shards of a variable; expected one",
              part.name(), shards.size());
        const VariableId id = shards.front().id;
        const RefPtr<Entry> found = entry(id);
        found->check(spec, "an update");
        used.emplace(id, found);
        if (!made->first) made->first = found;
        return found;
      });
  if (!made->first)
    fail<InvalidArgumentError>("[ParameterServer] update '{}' writes no variable", part.name());
  for (auto& [id, found] : used) made->entries.push_back(std::move(found));
  made->part = part;
  const std::shared_lock changing(changing_);
  const std::lock_guard lock(mutex_);
  if (updates_.contains({function, index})) return;
  note([&](proto::JournalRecord& record) {
    record.mutable_update()->set_function(function);
    record.mutable_update()->set_index(index);
    *record.mutable_update()->mutable_part() = part;
  });
  updates_.emplace(std::pair{function, index}, std::move(made));
}

void ParameterStore::remove_updates(std::uint64_t function) {
  const std::shared_lock changing(changing_);
  const std::lock_guard lock(mutex_);
  const auto first = updates_.lower_bound({function, 0});
  const auto last = updates_.upper_bound({function, UINT32_MAX});
  if (first == last) return;
  note([&](proto::JournalRecord& record) { record.set_removed_updates(function); });
  updates_.erase(first, last);
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
                                              std::span<const proto::RunAttributes> attributes,
                                              std::optional<std::uint64_t> read_version) {
  const std::shared_ptr<Update> found = update(function, index);
  const std::shared_lock changing(changing_);
  const auto locks = found->lock();
  const std::uint64_t finished = finished_below_.load();
  found->closures.erase(found->closures.begin(), found->closures.lower_bound(finished));
  Applied result{.version = found->first->version};
  // A version from the future is none of this variable: there was an assignment of an old one.
  if (read_version && *read_version < result.version)
    result.staleness = result.version - *read_version;
  result.repeated = closure < finished || found->closures.contains(closure);
  count(result);
  if (result.repeated) return result;
  note(
      [&](proto::JournalRecord& record) {
        proto::JournalRecord::Applied& applied = *record.mutable_applied();
        applied.set_function(function);
        applied.set_index(index);
        applied.set_closure(closure);
        applied.mutable_attributes()->Add(attributes.begin(), attributes.end());
      },
      inputs);
  found->program->run(inputs, attributes);
  for (const auto& entry : found->entries) ++entry->version;
  found->closures.insert(closure);
  return result;
}

void ParameterStore::check(std::uint64_t function, std::uint32_t index,
                           std::span<const Tensor> inputs) const {
  update(function, index)->program->check(inputs);
}

std::vector<Tensor> ParameterStore::mean(std::uint64_t function, std::uint32_t index,
                                         std::span<const std::vector<Tensor>> inputs) const {
  return update(function, index)->program->mean(inputs);
}

bool ParameterStore::applied(std::uint64_t function, std::uint32_t index,
                             std::uint64_t closure) const {
  const std::shared_ptr<Update> found = update(function, index);
  const auto locks = found->lock();
  return found->closures.contains(closure);
}

std::size_t ParameterStore::num_applied(std::uint64_t closure) const {
  const std::shared_lock lock(mutex_);
  std::size_t count = 0;
  for (const auto& [id, update] : updates_) {
    const auto locks = update->lock();
    count += update->closures.contains(closure) ? 1 : 0;
  }
  return count;
}

void ParameterStore::count(const Applied& applied) {
  const std::lock_guard lock(counting_);
  if (applied.repeated) {
    ++counts_.repeated;
  } else {
    ++counts_.applied;
    counts_.staleness_sum += applied.staleness;
    counts_.staleness_max = std::max(counts_.staleness_max, applied.staleness);
  }
}

ParameterStore::Counts ParameterStore::counts() const {
  const std::lock_guard lock(counting_);
  return counts_;
}

void ParameterStore::finish_below(std::uint64_t closure) {
  if (closure <= finished_below_.load()) return;
  const std::shared_lock changing(changing_);
  note([&](proto::JournalRecord& record) { record.set_finished_below(closure); });
  std::uint64_t before = finished_below_.load();
  while (before < closure && !finished_below_.compare_exchange_weak(before, closure)) {
  }
}

std::vector<Record> ParameterStore::capture(const std::function<void()>& begin) const {
  const std::lock_guard changing(changing_);
  begin();
  std::vector<Record> records;
  for (const auto& [id, entry] : entries_) {
    Record& record = records.emplace_back();
    proto::JournalRecord::Variable& variable = *record.header.mutable_variable();
    variable.set_id(id);
    variable.set_name(entry->name());
    variable.set_version(entry->version);
    rpc::Message message;
    *variable.mutable_spec() = attach(entry->value(), message);
    record.attachments = std::move(message.attachments);
  }
  for (const auto& [id, update] : updates_) {
    proto::JournalRecord::Update& written = *records.emplace_back().header.mutable_update();
    written.set_function(id.first);
    written.set_index(id.second);
    *written.mutable_part() = update->part;
    written.mutable_closures()->Add(update->closures.begin(), update->closures.end());
  }
  records.emplace_back().header.set_finished_below(finished_below_.load());
  return records;
}

void ParameterStore::restore(const proto::JournalRecord& record,
                             std::span<const rpc::Attachment> attachments) {
  TANDEM_ASSERT(!log_);
  AttachedTensors tensors(attachments, "ParameterServer");
  try {
    if (record.has_variable()) {
      const auto& variable = record.variable();
      create(variable.id(), variable.name(), tensors.next(variable.spec()));
      entry(variable.id())->version = variable.version();
    } else if (record.has_assigned()) {
      assign(record.assigned().id(), tensors.next(record.assigned().spec()));
    } else if (record.has_update()) {
      const auto& update = record.update();
      add_update(update.function(), update.index(), update.part());
      this->update(update.function(), update.index())
          ->closures.insert(update.closures().begin(), update.closures().end());
    } else if (record.has_applied()) {
      const auto& applied = record.applied();
      std::vector<Tensor> inputs;
      for (const proto::TensorSpec& spec : applied.inputs()) inputs.push_back(tensors.next(spec));
      const std::vector<proto::RunAttributes> attributes(applied.attributes().begin(),
                                                         applied.attributes().end());
      apply(applied.function(), applied.index(), applied.closure(), inputs, attributes);
    } else if (record.record_case() == proto::JournalRecord::kFinishedBelow) {
      finish_below(record.finished_below());
    } else if (record.record_case() == proto::JournalRecord::kRemovedUpdates) {
      remove_updates(record.removed_updates());
    } else if (record.record_case() == proto::JournalRecord::kRemovedVariable) {
      remove(record.removed_variable());
    }
  } catch (const DataLossError&) {
    throw;
  } catch (const Error& error) {
    logging::info("[ParameterServer] a change failed again when it was restored: {}", error.what());
  }
}

std::size_t ParameterStore::num_variables() const {
  const std::shared_lock lock(mutex_);
  return entries_.size();
}

std::size_t ParameterStore::num_updates() const {
  const std::shared_lock lock(mutex_);
  return updates_.size();
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
