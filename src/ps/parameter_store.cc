#include "ps/parameter_store.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "core/log.h"
#include "core/status.h"
#include "device/device_manager.h"
#include "ps/finished_closures.h"
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
  DeviceImpl& device() const override { return storage_->home(0); }
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
  std::uint64_t change = 0;            // the last one by the chief
  std::optional<StateRecord> to_keep;  // of that change, until the keeper has got it

 private:
  static std::unique_ptr<VariableStorage> make_storage(const Tensor& value) {
    DeviceImpl* const host = &DeviceManager::get().host();
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
  std::map<std::uint64_t, std::uint64_t> closures;  // which have applied it; Applied::number

  // Locks all variables, in the same order for all updates.
  std::vector<std::unique_lock<std::mutex>> lock() const {
    std::vector<std::unique_lock<std::mutex>> locks;
    for (const auto& entry : entries) locks.emplace_back(entry->mutex);
    return locks;
  }
};

// Without snapshots nothing is restored.
ParameterStore::ParameterStore() { life_.set_kept(UINT64_MAX); }
ParameterStore::~ParameterStore() = default;

ParameterStore::Change ParameterStore::change() const {
  const std::lock_guard turn(entering_);
  return Change(changing_);
}

void ParameterStore::keep(Entry& entry) {
  if (!keeper_) return;
  const std::lock_guard one(keeping_);
  std::optional<StateRecord> record;
  {
    const std::lock_guard lock(entry.mutex);
    record = std::exchange(entry.to_keep, std::nullopt);
  }
  if (record) keeper_(std::move(*record));
}

void ParameterStore::create(VariableId id, const std::string& name, const Tensor& value) {
  RefPtr<Entry> created = make_ref<Entry>(name, value);
  {
    const auto changing = change();
    const std::lock_guard lock(mutex_);
    const auto [found, is_new] = entries_.try_emplace(id, created);
    if (is_new) {
      created->change = ++changes_;
      if (keeper_) created->to_keep = record_of(id, *created);
    }
    created = found->second;
  }
  const TensorType& spec = created->spec();
  if (spec.dtype != value.dtype() || spec.shape != value.shape())
    fail<AlreadyExistsError>(
        "[ParameterServer] variable {} exists with shape {} and dtype {}, and was created again "
        "with {} and {}",
        id, spec.shape.to_string(), name_of(spec.dtype), value.shape().to_string(),
        name_of(value.dtype()));
  keep(*created);  // also if it exists: the call that has created it may not have come so far
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
  row_numbers(numbers, spec.shape.rank() > 0 ? spec.shape.word(0) : 0,
              "ParameterServer: variable " + quoted_name(found->name(), spec));
  const EagerOnHost eager;
  const std::lock_guard lock(found->mutex);
  return {gather(found->value(), numbers), found->version};
}

void ParameterStore::assign(VariableId id, const Tensor& value) {
  const RefPtr<Entry> found = entry(id);
  found->check(impl_of(value), "a value");
  {
    const auto changing = change();
    const std::lock_guard lock(found->mutex);
    found->store(value);
    ++found->version;
    found->change = ++changes_;
    if (keeper_) found->to_keep = record_of(id, *found);
  }
  keep(*found);
}

void ParameterStore::remove(VariableId id) {
  RefPtr<Entry> last;  // its memory is freed after the lock
  StateRecord record;
  {
    const auto changing = change();
    const std::lock_guard lock(mutex_);
    const auto found = entries_.find(id);
    if (found == entries_.end()) return;
    last = std::move(found->second);
    entries_.erase(found);
    record.header.mutable_removed()->set_id(id);
    record.header.mutable_removed()->set_change(++changes_);
  }
  const std::lock_guard one(keeping_);
  if (keeper_) keeper_(std::move(record));
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
  const auto changing = change();
  const std::lock_guard lock(mutex_);
  updates_.try_emplace(std::pair{function, index}, std::move(made));
}

void ParameterStore::remove_updates(std::uint64_t function) {
  const auto changing = change();
  const std::lock_guard lock(mutex_);
  updates_.erase(updates_.lower_bound({function, 0}), updates_.upper_bound({function, UINT32_MAX}));
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
                                              std::optional<std::uint64_t> read_version,
                                              const Change& within) {
  const std::shared_ptr<Update> found = update(function, index);
  const Change own = within ? Change() : change();
  const auto locks = found->lock();
  const bool finished = forget_finished(*found, closure);
  Applied result{.version = found->first->version};
  // A version from the future is one of a state that was lost when the server was restarted.
  if (read_version && *read_version < result.version)
    result.staleness = result.version - *read_version;
  const auto earlier = found->closures.find(closure);
  result.repeated = finished || earlier != found->closures.end();
  if (earlier != found->closures.end()) result.number = earlier->second;
  count(result);
  if (result.repeated) return result;
  found->program->run(inputs, attributes);
  for (const auto& entry : found->entries) ++entry->version;
  result.number = ++updates_count_;
  found->closures.emplace(closure, result.number);
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

std::optional<std::uint64_t> ParameterStore::applied(std::uint64_t function, std::uint32_t index,
                                                     std::uint64_t closure) const {
  const std::shared_lock lock(mutex_);
  const auto found = updates_.find({function, index});
  if (found == updates_.end()) return {};
  const auto locks = found->second->lock();
  const auto number = found->second->closures.find(closure);
  if (number == found->second->closures.end()) return {};
  return number->second;
}

std::uint64_t ParameterStore::version(std::uint64_t function, std::uint32_t index) const {
  const std::shared_ptr<Update> found = update(function, index);
  const auto locks = found->lock();
  return found->first->version;
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

bool ParameterStore::forget_finished(Update& update, std::uint64_t closure) const {
  const std::lock_guard lock(finishing_);
  auto at = update.closures.begin();
  while (at != update.closures.end() && at->first < finished_.below())
    at = is_finished(finished_, at->first) ? update.closures.erase(at) : std::next(at);
  return is_finished(finished_, closure);
}

void ParameterStore::finish(const proto::FinishedClosures& closures) {
  const std::lock_guard lock(finishing_);
  add_finished(finished_, closures);
}

void ParameterStore::close_below(std::uint64_t closure) {
  const std::lock_guard one(keeping_);
  closed_below_ = std::max(closed_below_, closure);
  proto::FinishedClosures closed;
  closed.set_below(closed_below_);
  finish(closed);
  StateRecord record;
  record.header.set_closed_below(closed_below_);
  if (keeper_) keeper_(std::move(record));
}

StateRecord ParameterStore::record_of(VariableId id, Entry& entry) {
  StateRecord record;
  proto::StateRecord::Variable& variable = *record.header.mutable_variable();
  variable.set_id(id);
  variable.set_name(entry.name());
  variable.set_version(entry.version);
  variable.set_change(entry.change);
  rpc::Message message;
  *variable.mutable_spec() = attach(entry.value(), message);
  record.attachments = std::move(message.attachments);
  return record;
}

std::vector<StateRecord> ParameterStore::capture() const {
  const std::lock_guard turn(entering_);
  const std::lock_guard changing(changing_);
  std::vector<StateRecord> records(1);
  proto::StateRecord::Counts& counts = *records.front().header.mutable_counts();
  counts.set_updates(updates());
  counts.set_changes(changes());
  {
    const std::lock_guard lock(finishing_);
    *counts.mutable_finished() = finished_;
  }
  for (const auto& [id, entry] : entries_) records.push_back(record_of(id, *entry));
  for (const auto& [id, update] : updates_) {
    proto::StateRecord::Update& written = *records.emplace_back().header.mutable_update();
    written.set_function(id.first);
    written.set_index(id.second);
    *written.mutable_part() = update->part;
    for (const auto& [closure, number] : update->closures) {
      written.add_closures(closure);
      written.add_numbers(number);
    }
  }
  return records;
}

void ParameterStore::restore(const StateRecord& record) {
  const proto::StateRecord& header = record.header;
  AttachedTensors tensors(record.attachments, "ParameterServer");
  try {
    if (header.has_counts()) {
      updates_count_ = header.counts().updates();
      changes_ = header.counts().changes();
      finish(header.counts().finished());
    } else if (header.has_variable()) {
      restore_variable(header.variable(), tensors.next(header.variable().spec()));
    } else if (header.has_removed()) {
      entries_.erase(header.removed().id());
      changes_ = std::max(changes(), header.removed().change());
    } else if (header.has_update()) {
      restore_update(header.update());
    } else if (header.has_closed_below()) {
      close_below(header.closed_below());
    }
    tensors.end();
  } catch (const NotFoundError& error) {
    logging::info("[ParameterServer] an update is not restored: {}", error.what());
  } catch (const InvalidArgumentError& error) {
    fail<DataLossError>("[ParameterServer] a record is not valid: {}", error.what());
  }
}

void ParameterStore::restore_variable(const proto::StateRecord::Variable& variable,
                                      const Tensor& value) {
  const RefPtr<Entry> entry = make_ref<Entry>(variable.name(), value);
  entry->version = variable.version();
  entry->change = variable.change();
  changes_ = std::max(changes(), variable.change());
  entries_.insert_or_assign(variable.id(), entry);
}

void ParameterStore::restore_update(const proto::StateRecord::Update& update) {
  if (update.closures_size() != update.numbers_size())
    fail<DataLossError>("[ParameterServer] an update of {} closures has {} numbers",
                        update.closures_size(), update.numbers_size());
  add_update(update.function(), update.index(), update.part());
  const std::shared_ptr<Update> added = this->update(update.function(), update.index());
  for (int i = 0; i < update.closures_size(); ++i)
    added->closures.emplace(update.closures(i), update.numbers(i));
}

void ParameterStore::clear() {
  updates_.clear();
  entries_.clear();
  updates_count_ = changes_ = 0;
  finished_.Clear();
}

proto::ServerLife ParameterStore::life() const {
  const std::lock_guard lock(counting_);
  return life_;
}

void ParameterStore::set_restarts(std::span<const std::uint64_t> restarts) {
  const std::lock_guard lock(counting_);
  life_.mutable_restarts()->Assign(restarts.begin(), restarts.end());
}

void ParameterStore::set_kept(std::uint64_t updates) {
  const std::lock_guard lock(counting_);
  life_.set_kept(updates);
}

bool ParameterStore::has(VariableId id) const {
  const std::shared_lock lock(mutex_);
  return entries_.contains(id);
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
