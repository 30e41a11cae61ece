// The rendezvous server of a job, which holds its store and membership. Runs on its own thread, in
// rank 0's process or in a process that is not a rank.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "comm/rendezvous/socket.h"

namespace tandem {

struct TcpServerOptions {
  std::string host = "127.0.0.1";
  std::uint16_t port = 0;  // 0: any free port
  std::string secret;      // peers that do not know it are disconnected
  int size = 1;            // ranks of the job
  bool outside = false;    // it is not one of the ranks: serves successive jobs
  std::chrono::milliseconds greeting_limit = std::chrono::seconds(5);  // for a peer's handshake
};

// Robust against peers: invalid messages are dropped; each connection's messages, memory and time
// are limited; no connection blocks another.
class TcpServer {
 public:
  // Listens when it returns. Throws as listen_on() does.
  explicit TcpServer(TcpServerOptions options);
  // Flushes unsent messages for up to a second. If report_failed_start() was called, first serves
  // late ranks as described there.
  ~TcpServer();
  TcpServer(const TcpServer&) = delete;
  TcpServer& operator=(const TcpServer&) = delete;

  std::uint16_t port() const;
  // Waits until every rank that has joined has left. False at the deadline.
  bool wait_until_deserted(Clock::time_point deadline) const;
  // REQUIRES: outside. Returns when the first job is over: each rank has left it or failed. Throws
  // DeadlineExceededError with the ranks that have not joined at the limit, AbortedError with the
  // first failure if no rank has left in good order, UnavailableError if the server itself has
  // failed.
  void wait_for_first_job(const TimeLimit& for_joining) const;
  // REQUIRES: outside. The process of a rank has ended: a job that waits for the rank fails.
  void rank_ended(int rank);
  // Called when rank 0 ends before all ranks have joined. Ranks that join within `limit` receive
  // the reason. The server ends after that time, or once no rank is missing.
  void report_failed_start(std::chrono::milliseconds limit);

 private:
  class Loop;
  std::unique_ptr<Loop> loop_;
};

}  // namespace tandem
