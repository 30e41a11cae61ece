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
#include "core/core_yield.h"

namespace tandem {

class ProcessWork;

// What the works of a communicator share with it.
struct ProcessGroup {
  ProcessGroup(std::unique_ptr<Backend> moves_bytes, Device& of, ProcessGroupOptions with)
      : backend(std::move(moves_bytes)), device(of), options(std::move(with)) {}

  void submit(const std::shared_ptr<ProcessWork>& work);
  // Starts what can be started and advances what is under way, as far as `last` (null: all).
  void advance(const ProcessWork* last);
  // Advances until `work` is done.
  void wait(const ProcessWork& work);
  // Ends the group: every call of this rank throws that error from here on.
  void end_with(GroupFailure kind, const std::string& text) noexcept;
  // Ends the group with the exception that is being handled, and throws it again.
  [[noreturn]] void fail_with_current();
  [[noreturn]] void throw_deadline(const ProcessWork& work);

  std::unique_ptr<Backend> backend;
  Device& device;
  ProcessGroupOptions options;
  std::uint64_t next_sequence = 0;
  Label label;
  std::deque<std::shared_ptr<ProcessWork>> open;  // not done, in the order of the calls
  CoreYield core_yield;
  std::exception_ptr failure;
  std::map<std::vector<int>, int> splits;  // how often each list of ranks was asked for
};

class ProcessWork final : public Work {
 public:
  // REQUIRES: the inputs and outputs have one dtype.
  ProcessWork(std::shared_ptr<ProcessGroup> group, const CheckedCall& call);
  ~ProcessWork() override;
  ProcessWork(const ProcessWork&) = delete;
  ProcessWork& operator=(const ProcessWork&) = delete;

  const Collective& collective() const { return collective_; }
  BackendOperation* operation() const { return operation_.get(); }
  bool done() const { return done_; }

  // Whether the backend has it; false while the device has not computed what it takes.
  bool start();
  bool advance();
  void wait() override;
  bool test() override;
  void check_peers() override;
  std::vector<int> missing() const override;
  bool sleep(std::chrono::microseconds limit) const override;

 private:
  void stage(std::size_t inputs, bool in_place);
  bool writes_here() const;
  void finish();
  std::int64_t bytes() const;

  std::shared_ptr<ProcessGroup> group_;
  std::vector<Buffer> buffers_;  // inputs, then outputs; one list for what works in place
  Collective collective_;
  std::unique_ptr<BackendOperation> operation_;  // null: not started
  bool done_ = false;
  std::int64_t begin_ = 0;
  Event ready_;
  std::shared_ptr<void> staging_;  // null: the backend reaches the buffers
  std::vector<Buffer> staged_;
  std::size_t first_out_ = 0;
};

}  // namespace tandem
