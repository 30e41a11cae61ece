// Counters of a task since it started: its calls, closures and bytes.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "ps/proto/task_calls.pb.h"
#include "rpc/channel.h"
#include "rpc/server.h"

namespace tandem::ps {

// Thread-safe. Measuring takes a few atomic additions per call, and a short lock per closure.
class TaskMeter {
 public:
  void add_bytes_in(std::uint64_t bytes) { bytes_in_ += bytes; }
  void add_bytes_out(std::uint64_t bytes) { bytes_out_ += bytes; }
  // Runs the handler of a call of this method.
  rpc::Message run(const std::string& method, const rpc::Handler& handler,
                   const rpc::CallContext& context, rpc::Message request);
  // Sets the bytes, closures, pulls and pushes.
  void describe(proto::StatusReply& reply) const;

 private:
  using Clock = std::chrono::steady_clock;
  class Closure;  // that is running

  std::uint64_t median_ms() const;

  std::atomic<std::uint64_t> bytes_in_{0}, bytes_out_{0}, pulls_{0}, pushes_{0};
  mutable std::mutex mutex_;  // guards the following
  std::multiset<Clock::time_point> running_;
  std::uint64_t closures_ = 0;
  std::array<Clock::duration, 64> last_{};  // how long closures ran: closure i at i modulo its size
};

// A server whose calls the meter measures. The meter has to outlive it.
std::unique_ptr<rpc::Server> measured(std::unique_ptr<rpc::Server> server, TaskMeter& meter);
// A channel whose bytes the meter counts. The meter has to outlive its calls.
std::shared_ptr<rpc::Channel> measured(std::shared_ptr<rpc::Channel> channel, TaskMeter& meter);

// Answers Task/Status with what `describe` sets. It must not wait. REQUIRES: before start().
void serve_status(rpc::Server& server, std::function<void(proto::StatusReply&)> describe);

inline constexpr const char* kStatus = "Task/Status";

}  // namespace tandem::ps
