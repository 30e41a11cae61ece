// Membership over a connection to the rendezvous server: sends heartbeats, receives failures.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "comm/membership.h"
#include "comm/rendezvous/server_connection.h"
#include "tandem/errors.h"

namespace tandem {

struct TcpMembershipOptions {
  int rank = 0, size = 1;
  bool outside = false;  // the server is not one of the ranks
  // Part of messages about ranks that have not joined.
  std::string hint = {};
  std::chrono::milliseconds heartbeat = std::chrono::seconds(1);
  // after which this rank or the server counts as dead
  std::chrono::milliseconds silence = std::chrono::seconds(30);
};

// The server closed before it accepted the rank. It belonged to an earlier job at the same address;
// the server of this job may still start.
class NotAcceptedError final : public UnavailableError {
  using UnavailableError::UnavailableError;
};

class TcpMembership final : public Membership {
 public:
  // Joins the job and waits until every rank has. Throws DeadlineExceededError with the missing
  // ranks, InvalidArgumentError if the rank is refused, AbortedError or UnavailableError if another
  // rank fails meanwhile, NotAcceptedError.
  TcpMembership(ServerConnection connection, TcpMembershipOptions options, const TimeLimit& limit);
  // Without shut_down() before, this rank counts as dead.
  ~TcpMembership() override;

  // The job's number among successive jobs of the server.
  int job() const { return job_; }
  int rank() const override { return options_.rank; }
  int size() const override { return options_.size; }
  bool failed() const noexcept override {
    return failed_.load(std::memory_order_relaxed) ||
           (needs_all_.load(std::memory_order_relaxed) > 0 &&
            one_left_.load(std::memory_order_relaxed));
  }
  void set_needs_all(bool needs_all) override { needs_all_ += needs_all ? 1 : -1; }
  [[noreturn]] void throw_failure() const override;
  void report(const std::string& reason) override;
  void note_failure(const std::string& reason) override;
  // The job or the process ends. Nothing happens without a noted failure, or after shut_down().
  void report_noted_failure();
  // Says goodbye, so that this rank's absence is not a failure. Returns when the server has
  // acknowledged it, or at the deadline.
  void shut_down(Clock::time_point deadline);

 private:
  struct Noted;
  void join(const TimeLimit& limit);
  // The server's name in error messages before the job has started.
  const char* unknown_server() const;
  // The server's message on this rank: refused, started or failed. Empty at the deadline.
  std::optional<WireMessage> await_verdict(Clock::time_point deadline, bool& accepted);
  // Names the ranks that have not joined for a time, from the server's message.
  std::string describe_absence(const WireMessage& alive, std::chrono::milliseconds time) const;
  // Called at the deadline: returns a verdict that has arrived just in time, or throws.
  WireMessage check_join_timeout(const TimeLimit& limit);
  // A verdict that the closed server had sent before and that has not been read.
  std::optional<WireMessage> last_verdict();
  void run();
  // Returns false if no more messages will follow.
  bool handle(const WireMessage& message);
  // Reads what the server had sent before it closed the connection. Returns whether it was a
  // farewell.
  bool read_remaining();
  void send_pending();
  void record_failure(bool aborted, const std::string& reason);
  void record_departure(const WireMessage& message);
  // Passes a message to the thread and waits until the server has answered it.
  void post(const WireMessage& message, Clock::time_point deadline);
  void stop();

  const TcpMembershipOptions options_;
  ServerConnection connection_;  // only the thread uses it after the constructor
  Socket wake_;
  int job_ = 0;
  std::string server_;  // for messages: its pid and host
  std::atomic<bool> failed_ = false, one_left_ = false;
  std::atomic<int> needs_all_ = 0;  // how often it is set

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<WireMessage> pending_;  // to be sent
  int unanswered_ = 0;                // messages except goodbye that the server has not answered
  bool ended_ = false;     // the thread is done: the server has acknowledged goodbye, or is gone
  bool stopping_ = false;  // the thread must end
  bool aborted_ = false;   // of the failure: the rank reported it itself
  std::string failure_;
  std::string noted_;  // by note_failure()
  std::string left_;   // a rank that has left in good order
  std::thread thread_;
};

}  // namespace tandem
