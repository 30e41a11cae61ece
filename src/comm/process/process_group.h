// The works of a group of processes and their shared state: start, advance, wait, fail.
#pragma once

#include <chrono>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "comm/checked_communicator.h"
#include "comm/process/backend.h"
#include "comm/process/group_options.h"
#include "comm/process/progress_engine.h"
#include "core/core_yield.h"

namespace tandem {

class ProcessWork;

// The state that a communicator and its works share. The owner calls its functions; between these
// calls the progress engine advances the works.
class ProcessGroupState final : public ProgressEngine::Client {
 public:
  ProcessGroupState(std::unique_ptr<Backend> its_backend, DeviceImpl& of, ProcessGroupOptions with)
      : backend(std::move(its_backend)), device(of), options(std::move(with)) {}

  // Functions that are not noexcept throw the group's error once it has failed.
  void submit(const std::shared_ptr<ProcessWork>& work);
  // Starts works whose turn has come and advances those that run.
  void progress();
  // The same, up to `work`. Returns whether it is done.
  bool test(ProcessWork& work);
  // Advances works until `work` is done.
  void wait(ProcessWork& work);
  void check_peers(const ProcessWork& work);
  std::vector<int> missing(const ProcessWork& work);
  bool sleep(const ProcessWork& work, std::chrono::microseconds limit);
  // See Backend.
  std::unique_ptr<Backend> split(const std::vector<int>& ranks);
  std::unique_ptr<Communicator> split_below(const std::vector<int>& ranks);
  // Aborts the group: from now on every call of this rank throws that error.
  void abort(GroupFailure kind, const std::string& text) noexcept;
  // Called when the communicator is destroyed: breaks the ownership cycle of group and open works.
  void close() noexcept;

  const std::unique_ptr<Backend> backend;
  DeviceImpl& device;
  const ProcessGroupOptions options;
  // For the owner's thread only.
  std::uint64_t next_sequence = 0;
  Label label;

 private:
  bool under_way() const override;
  bool advance_unattended() noexcept override;
  // The functions below REQUIRE attend().
  void throw_if_failed() const {
    if (failure_) std::rethrow_exception(failure_);
  }
  // Starts and advances works in the order of the calls, up to `last` (null: all). `beyond`: later
  // ones as well, because a peer may need them before it advances `last`.
  void advance(const ProcessWork* last, bool beyond = false);
  // Returns whether the work is done, and marks it so. A work whose data has arrived counts even if
  // the group has failed since.
  bool take(ProcessWork& work);
  // Called while a rank of the job has failed: whether open works may still complete, because what
  // it sent before is under way. False if they wait for a rank that is gone, if nothing happens, or
  // once a work has been submitted after the failure: the rank has not completed that one.
  bool may_complete() noexcept;
  // The checks that a waiting rank makes several times per second; the last time at `last`.
  void check_while_waiting(const ProcessWork& work, std::chrono::steady_clock::time_point begin,
                           std::chrono::steady_clock::time_point last);
  // Replaces the failure by the membership's, if the error is a peer's word about the membership.
  void ask_membership(const std::exception& error) noexcept;
  // Aborts the group with the current exception.
  void record_current() noexcept;
  [[noreturn]] void abort_with_current();
  // Whom the work has been waiting for.
  std::string describe_wait(const ProcessWork& work, std::chrono::milliseconds waited) const;
  // The ranks that have not reached it, or of which this rank does not know.
  std::vector<int> absent_from(const BackendOperation& operation) const;
  // Whether this rank warns of the stall, for all that wait.
  bool tells_of_stall(const ProcessWork& work) const;

  std::deque<std::shared_ptr<ProcessWork>> open_;  // not done, in the order of the calls
  CoreYield core_yield_;
  std::exception_ptr failure_;
  // Since a rank of the job has failed: when something happened last, and after how many steps, and
  // when the peers were checked.
  struct LastData {
    std::chrono::steady_clock::time_point since, checked;
    std::uint64_t steps = 0;
  };
  std::optional<LastData> last_data_;
  bool submitted_after_failure_ = false;
  std::map<std::vector<int>, int> splits_;  // number of splits per list of ranks
};

class ProcessWork final : public CollectiveWork {
 public:
  // REQUIRES: the inputs and outputs have one dtype.
  ProcessWork(std::shared_ptr<ProcessGroupState> group, const CheckedCall& call);
  ~ProcessWork() override;
  ProcessWork(const ProcessWork&) = delete;
  ProcessWork& operator=(const ProcessWork&) = delete;

  const Collective& collective() const { return collective_; }
  // Null if it has not started or has ended.
  BackendOperation* operation() const { return operation_.get(); }
  bool started() const { return operation_ || arrived_; }
  // Whether the backend is done with it, even if the group has failed since.
  bool arrived() const { return arrived_; }
  // For the owner's thread only.
  bool done() const { return done_; }

  // Passes it to the backend if the device has computed the inputs. Returns whether the backend has
  // it.
  bool start();
  // Makes progress without waiting. Returns whether its data has arrived. REQUIRES: started().
  bool advance();
  // Starts or advances it, as far as possible. Returns whether anything was done.
  bool advance_if_possible();
  // Copies results to the caller's buffers. On the owner's thread, because the order of device work
  // matters.
  void finish();
  void wait() override;
  bool test() override;
  void check_peers() override;
  std::vector<int> missing() const override;
  bool sleep(std::chrono::microseconds limit) const override;

 private:
  void stage(std::size_t inputs, bool in_place);
  bool writes_here() const;
  std::int64_t bytes() const;

  std::shared_ptr<ProcessGroupState> group_;
  std::vector<Buffer> buffers_;  // inputs, then outputs; a single list for in-place collectives
  Collective collective_;
  std::unique_ptr<BackendOperation> operation_;
  bool arrived_ = false, done_ = false;
  std::int64_t begin_ = 0, end_ = 0;
  StreamEvent ready_;
  std::shared_ptr<void> staging_;  // null: the backend accesses the buffers directly
  std::vector<Buffer> staged_;
  std::size_t first_out_ = 0;
};

}  // namespace tandem
