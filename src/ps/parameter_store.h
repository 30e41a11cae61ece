// The variables that one parameter server holds.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <shared_mutex>
#include <span>
#include <string>
#include <vector>

#include "ps/proto/server_calls.pb.h"
#include "ps/state_file.h"
#include "ps/update_program.h"

namespace tandem::ps {

// Thread-safe. Readers of a variable wait only for the update that is being applied, and keep the
// elements that they read.
class ParameterStore {
 public:
  ParameterStore();
  ~ParameterStore();
  ParameterStore(const ParameterStore&) = delete;
  ParameterStore& operator=(const ParameterStore&) = delete;

  // Creates a variable with a copy of `value`. If it exists already with the same spec, nothing
  // happens, because a call may be repeated. Throws AlreadyExistsError for another spec.
  void create(VariableId id, const std::string& name, const Tensor& value);

  struct Read {
    Tensor value;               // on the CPU; later updates do not change it
    std::uint64_t version = 0;  // the number of writes before it was read
  };
  // Throws NotFoundError if there is no such variable.
  Read read(VariableId id) const;
  // Rows along the first axis. `numbers`: of int64 and one axis, in any order. Throws
  // InvalidArgumentError if there is no such row.
  Read read_rows(VariableId id, const Tensor& numbers) const;
  // Throws InvalidArgumentError for a value of another spec.
  void assign(VariableId id, const Tensor& value);
  // Does nothing if there is no such variable. REQUIRES: its updates were removed.
  void remove(VariableId id);

  // Adds update `index` of a function; again: nothing happens. Its variables must exist.
  void add_update(std::uint64_t function, std::uint32_t index, const proto::Part& part);
  // Removes the updates of a function that no closure uses any more.
  void remove_updates(std::uint64_t function);

  struct Applied {
    bool repeated = false;        // it was applied before, so nothing happened
    std::uint64_t version = 0;    // of the first variable, before the update
    std::uint64_t staleness = 0;  // the writes since it was read
    // updates() when it was applied, also if that was before; 0: not known, because the closure was
    // finished.
    std::uint64_t number = 0;
  };
  // A snapshot has all changes that are made while this lives, or none of them.
  using Change = std::shared_lock<std::shared_mutex>;
  Change change() const;
  // Applies an update for a closure, at most once. `inputs` and `attributes`: as
  // UpdateProgram::run(). `read_version`: of the first variable that the inputs were computed from;
  // none: of no version. `within`: a change() that lives; empty: it is a change of its own.
  Applied apply(std::uint64_t function, std::uint32_t index, std::uint64_t closure,
                std::span<const Tensor> inputs, std::span<const proto::RunAttributes> attributes,
                std::optional<std::uint64_t> read_version = {}, const Change& within = {});
  // As UpdateProgram.
  void check(std::uint64_t function, std::uint32_t index, std::span<const Tensor> inputs) const;
  std::vector<Tensor> mean(std::uint64_t function, std::uint32_t index,
                           std::span<const std::vector<Tensor>> inputs) const;
  // Applied::number if the update was applied for a closure. None also if the update is not known.
  // REQUIRES: the closure has not finished.
  std::optional<std::uint64_t> applied(std::uint64_t function, std::uint32_t index,
                                       std::uint64_t closure) const;
  // The version of the first variable of an update.
  std::uint64_t version(std::uint64_t function, std::uint32_t index) const;
  // How many updates were applied for a closure. REQUIRES: the same.
  std::size_t num_applied(std::uint64_t closure) const;
  // These closures are not sent any more: their updates need not be remembered.
  void finish(const proto::FinishedClosures& closures);
  // Closures below this one have no effect from now on, also after a restart.
  void close_below(std::uint64_t closure);

  // Takes a record of each variable that the chief creates, assigns or removes, and of what it
  // closes, before that call returns. Reads and updates do not wait for it. REQUIRES: no other call
  // is under way.
  using Keeper = std::function<void(StateRecord)>;
  void set_keeper(Keeper keeper) { keeper_ = std::move(keeper); }
  // The contents at one moment: the counts, then the variables, then the rest. Changes wait while
  // they are collected; updates copy the variables that the records refer to.
  std::vector<StateRecord> capture() const;
  // Restores a record of capture() or of a keeper, in their order. An update whose variables were
  // removed is left out. Throws DataLossError for a record that is not valid.
  void restore(const StateRecord& record);
  // Removes everything that was restored.
  void clear();

  // How many updates were applied, and how often the chief has changed a variable, by this store
  // and by those from which it has continued.
  std::uint64_t updates() const { return updates_count_.load(); }
  std::uint64_t changes() const { return changes_.load(); }

  // How this server has lived so far.
  proto::ServerLife life() const;
  void set_restarts(std::span<const std::uint64_t> restarts);
  void set_kept(std::uint64_t updates);

  bool has(VariableId id) const;
  std::size_t num_variables() const;
  std::size_t num_updates() const;
  std::size_t num_remembered() const;  // applied updates

  // Counters of apply() since the start.
  struct Counts {
    std::int64_t applied = 0;
    std::int64_t repeated = 0;                           // answered without effect
    std::uint64_t staleness_sum = 0, staleness_max = 0;  // of those applied
  };
  Counts counts() const;

 private:
  class Entry;
  struct Update;
  using UpdateId = std::pair<std::uint64_t, std::uint32_t>;  // function and index

  RefPtr<Entry> entry(VariableId id) const;
  std::shared_ptr<Update> update(std::uint64_t function, std::uint32_t index) const;

  void keep(Entry& entry);
  static StateRecord record_of(VariableId id, Entry& entry);
  void restore_variable(const proto::StateRecord::Variable& variable, const Tensor& value);
  void restore_update(const proto::StateRecord::Update& update);
  void count(const Applied& applied);
  // Forgets the closures of an update that have finished. Whether this one has.
  bool forget_finished(Update& update, std::uint64_t closure) const;

  // Shared by every change, so that capture() sees none half done. A change first passes
  // `entering_`, which capture() holds while it waits: else the changes that follow each other
  // would keep it waiting.
  mutable std::mutex entering_;
  mutable std::shared_mutex changing_;
  Keeper keeper_;
  std::mutex keeping_;  // one record at a time; guards the following
  std::uint64_t closed_below_ = 0;
  mutable std::shared_mutex mutex_;  // guards the maps
  std::map<VariableId, RefPtr<Entry>> entries_;
  std::map<UpdateId, std::shared_ptr<Update>> updates_;
  std::atomic<std::uint64_t> updates_count_{0}, changes_{0};
  mutable std::mutex finishing_;  // guards the following
  proto::FinishedClosures finished_;
  mutable std::mutex counting_;  // guards the following
  Counts counts_;
  proto::ServerLife life_;
};

}  // namespace tandem::ps
