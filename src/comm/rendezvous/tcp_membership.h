// Membership over a connection with the rendezvous server: heartbeats one way, failures the other.
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
  Role role = Role::kWorker;
  bool outside = false;  // the server is none of the ranks'
  std::chrono::milliseconds heartbeat = std::chrono::seconds(1);
  // Of this rank or the server until it counts as dead for the other.
  std::chrono::milliseconds silence = std::chrono::seconds(30);
};

// The server went before it took the rank in: it was that of an earlier job at the same address,
// and the next one's may come.
class NotTakenInError final : public UnavailableError {
  using UnavailableError::UnavailableError;
};

class TcpMembership final : public Membership {
 public:
  // Joins the job and waits until every rank has. Throws DeadlineExceededError that names the ranks
  // which are missing, InvalidArgumentError when the rank cannot join, AbortedError or
  // UnavailableError when another rank fails meanwhile, NotTakenInError.
  TcpMembership(ServerConnection connection, TcpMembershipOptions options, const TimeLimit& limit);
  // Without leave() before, the others take this rank for dead.
  ~TcpMembership() override;

  // The number of the job, of those that the server has one after the other.
  int job() const { return job_; }
  int rank() const override { return options_.rank; }
  int size() const override { return options_.size; }
  Role role() const override { return options_.role; }
  bool failed() const noexcept override { return failed_.load(std::memory_order_relaxed); }
  [[noreturn]] void throw_failure() const override;
  void report(const std::string& reason) override;
  std::int64_t epoch() const noexcept override { return epoch_.load(std::memory_order_relaxed); }
  EpochWorkers go_on() override;
  // Says goodbye: from now on nobody takes this rank's absence for a failure. Returns when the
  // server has heard it, or at the deadline.
  void leave(Clock::time_point deadline);

 private:
  void join(const TimeLimit& limit);
  // How errors call the server before the job has started.
  const char* unknown_server() const;
  // The server's word on this rank: refused, started or failed. Nothing at the deadline.
  std::optional<Message> await_verdict(Clock::time_point deadline, bool& taken_in);
  // At the deadline: throws, unless the word comes at the last moment.
  Message give_up_joining(const TimeLimit& limit);
  // Of a server that has gone: what it said and has not been read.
  std::optional<Message> last_verdict();
  void run();
  // False: nothing more is to come.
  bool handle(const Message& message);
  // What the server said before it went, unread where sending has failed. Whether that was a
  // farewell.
  bool hear_last_words();
  void send_pending();
  void fail_with(bool gave_up, const std::string& reason);
  void take_workers(const Message& message);
  // Hands a message to the thread and waits until the server has answered it.
  void post(const Message& message, Clock::time_point deadline);
  void stop();

  const TcpMembershipOptions options_;
  ServerConnection connection_;  // after the constructor: the thread's
  Socket wake_;
  int job_ = 0;
  std::string server_;  // with its process and host
  std::atomic<bool> failed_ = false;
  std::atomic<std::int64_t> epoch_ = 0;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Message> pending_;  // to be sent
  int unheard_ = 0;               // messages but goodbye that the server has not answered yet
  bool ended_ = false;     // the thread is past its work: the server has heard goodbye, or has gone
  bool stopping_ = false;  // the thread is to end
  bool gave_up_ = false;   // of the failure: the rank said so itself
  std::string failure_;
  std::optional<EpochWorkers> workers_;  // the answer to go_on()
  std::int64_t gone_on_ = -1;            // in which epoch this rank has
  std::thread thread_;
};

}  // namespace tandem
