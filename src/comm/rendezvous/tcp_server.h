// The rendezvous server of a job: the store and the membership behind it. Runs on a thread of its
// own, in rank 0's process or in one that is none of the ranks'.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "comm/rendezvous/socket.h"

namespace tandem {

struct TcpServerOptions {
  std::string host = "127.0.0.1";
  std::uint16_t port = 0;  // 0: one that is free
  std::string secret;      // peers that do not know it are dropped
  int size = 1;            // ranks of the job
  bool outside = false;    // of the ranks: serves one job after the other
  std::chrono::milliseconds greeting_limit = std::chrono::seconds(5);  // of a peer's handshake
};

// Peers cannot hurt it: what is no message is dropped, each connection's messages, memory and time
// are limited, and none can hold up another.
class TcpServer {
 public:
  // Listens when it returns. Throws as listen_on() does.
  explicit TcpServer(TcpServerOptions options);
  // Sends what is still to be sent, for a second at most; where that was asked for, has the last
  // word first.
  ~TcpServer();
  TcpServer(const TcpServer&) = delete;
  TcpServer& operator=(const TcpServer&) = delete;

  std::uint16_t port() const;
  // Waits until no rank is there that has joined and not left. False at the deadline.
  bool wait_until_deserted(Clock::time_point deadline) const;
  // REQUIRES: outside. Returns when the first job is over: each rank has left it or failed. Throws
  // DeadlineExceededError that names the ranks which have not joined at the limit, AbortedError
  // with the first failure when no rank has left in good order, UnavailableError when the server
  // itself has failed.
  void wait_for_first_job(const TimeLimit& for_joining) const;
  // Rank 0 has ended before all ranks have joined. Ranks that join within `limit` receive the
  // reason; the server then ends by itself, or as soon as no rank is missing any more.
  void have_last_word(std::chrono::milliseconds limit);

 private:
  class Loop;
  std::unique_ptr<Loop> loop_;
};

}  // namespace tandem
