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

#include "ps/records.h"
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
  };
  // Applies an update for a closure, at most once. `inputs` and `attributes`: as
  // UpdateProgram::run(). `read_version`: of the first variable that the inputs were computed from;
  // none: of no version.
  Applied apply(std::uint64_t function, std::uint32_t index, std::uint64_t closure,
                std::span<const Tensor> inputs, std::span<const proto::RunAttributes> attributes,
                std::optional<std::uint64_t> read_version = {});
  // As UpdateProgram.
  void check(std::uint64_t function, std::uint32_t index, std::span<const Tensor> inputs) const;
  std::vector<Tensor> mean(std::uint64_t function, std::uint32_t index,
                           std::span<const std::vector<Tensor>> inputs) const;
  // Whether an update was applied for a closure. REQUIRES: the closure has not finished.
  bool applied(std::uint64_t function, std::uint32_t index, std::uint64_t closure) const;
  // How many updates were. REQUIRES: the same.
  std::size_t num_applied(std::uint64_t closure) const;
  // No closure below this one is sent any more: its updates need not be remembered.
  void finish_below(std::uint64_t closure);

  // Reports every change from now on; null: none. REQUIRES: no other call is under way.
  void set_log(ChangeLog* log) { log_ = log; }
  // The records that restore the present contents, in an order in which they can be restored. Calls
  // `begin` while no change is under way.
  std::vector<Record> capture(const std::function<void()>& begin) const;
  // Restores a record of capture() or of a log. Changes that failed when they were reported fail
  // again, which is logged. Throws DataLossError for a record that is not valid.
  void restore(const proto::JournalRecord& record, std::span<const rpc::Attachment> attachments);

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

  void count(const Applied& applied);
  // Reports the record that `fill` sets, with the tensors.
  template <class F>
  void note(const F& fill, std::span<const Tensor> tensors = {}) const;

  // Shared by every change, so that capture() sees none half done.
  mutable std::shared_mutex changing_;
  ChangeLog* log_ = nullptr;
  mutable std::shared_mutex mutex_;  // guards the maps
  std::map<VariableId, RefPtr<Entry>> entries_;
  std::map<UpdateId, std::shared_ptr<Update>> updates_;
  std::atomic<std::uint64_t> finished_below_{0};
  mutable std::mutex counting_;  // guards the following
  Counts counts_;
};

}  // namespace tandem::ps
