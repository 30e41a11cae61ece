// The works of a group of processes and what they share: starting, advancing, waiting, failing.
#pragma once

#include <chrono>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <vector>

#include "comm/checked_communicator.h"
#include "comm/process/backend.h"
#include "comm/process/process_communicator.h"
#include "comm/process/progress_engine.h"
#include "core/core_yield.h"

namespace tandem {

class ProcessWork;

// The state that a communicator and its works share. The owner calls its functions; between the
// owner's calls the progress engine advances the works.
class ProcessGroup final : public ProgressEngine::Client {
 public:
  ProcessGroup(std::unique_ptr<Backend> moves_bytes, Device& of, ProcessGroupOptions with)
      : backend(std::move(moves_bytes)), device(of), options(std::move(with)) {}

  // Throws what the group has failed with; so do all that follow, unless they say noexcept.
  void submit(const std::shared_ptr<ProcessWork>& work);
  // Starts what can be started and advances what is under way.
  void progress();
  // The same as far as `work`; whether that is done.
  bool test(ProcessWork& work);
  // Advances until `work` is done.
  void wait(ProcessWork& work);
  void check_peers(const ProcessWork& work);
  std::vector<int> missing(const ProcessWork& work);
  bool sleep(const ProcessWork& work, std::chrono::microseconds limit);
  std::unique_ptr<Backend> split(const std::vector<int>& ranks);
  // Ends the group: every call of this rank throws that error from here on.
  void abort(GroupFailure kind, const std::string& text) noexcept;
  // The communicator is gone: breaks the circle of group and works, should some not be done.
  void close() noexcept;

  const std::unique_ptr<Backend> backend;
  Device& device;
  const ProcessGroupOptions options;
  // The owner's alone.
  std::uint64_t next_sequence = 0;
  Label label;

 private:
  bool under_way() const override;
  bool advance_unattended() noexcept override;
  // Those below REQUIRE attend().
  void throw_if_failed() const {
    if (failure_) std::rethrow_exception(failure_);
  }
  // Starts and advances works in the order of the calls, as far as `last` (null: all). `beyond`:
  // those after it, too; a peer may need them before it gets on with `last`.
  void advance(const ProcessWork* last, bool beyond = false);
  // Whether the work is done now, for it has arrived, be it that the group has failed since.
  bool take(ProcessWork& work);
  // What a rank that waits does several times a second.
  void look_after(const ProcessWork& work, std::chrono::steady_clock::time_point begin);
  // Ends the group with the exception that is being handled.
  void keep_current() noexcept;
  [[noreturn]] void fail_with_current();
  [[noreturn]] void throw_deadline(const ProcessWork& work) const;

  std::deque<std::shared_ptr<ProcessWork>> open_;  // not done, in the order of the calls
  CoreYield core_yield_;
  std::exception_ptr failure_;
  std::map<std::vector<int>, int> splits_;  // how often each list of ranks was asked for
};

class ProcessWork final : public Work {
 public:
  // REQUIRES: the inputs and outputs have one dtype.
  ProcessWork(std::shared_ptr<ProcessGroup> group, const CheckedCall& call);
  ~ProcessWork() override;
  ProcessWork(const ProcessWork&) = delete;
  ProcessWork& operator=(const ProcessWork&) = delete;

  const Collective& collective() const { return collective_; }
  // Null: not started, or ended.
  BackendOperation* operation() const { return operation_.get(); }
  bool started() const { return operation_ || arrived_; }
  // Whether the backend has done its part, be it that the group has failed since.
  bool arrived() const { return arrived_; }
  // The owner's alone.
  bool done() const { return done_; }

  // Whether the backend has it; false while the device has not computed what it takes.
  bool start();
  // Does what can be done without waiting; whether it has arrived. REQUIRES: started().
  bool advance();
  // The same; whether anything could be done.
  bool get_on();
  // Brings what has arrived to where it belongs. The owner's, for the device's work has an order.
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

  std::shared_ptr<ProcessGroup> group_;
  std::vector<Buffer> buffers_;  // inputs, then outputs; one list for what works in place
  Collective collective_;
  std::unique_ptr<BackendOperation> operation_;
  bool arrived_ = false, done_ = false;
  std::int64_t begin_ = 0, end_ = 0;
  Event ready_;
  std::shared_ptr<void> staging_;  // null: the backend reaches the buffers
  std::vector<Buffer> staged_;
  std::size_t first_out_ = 0;
};

}  // namespace tandem
