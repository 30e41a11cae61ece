// The caller's side of a connection over a Unix socket.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/rendezvous/socket.h"
#include "rpc/frame.h"
#include "rpc/shared_memory/area.h"
#include "rpc/unix_socket/address.h"
#include "rpc/unix_socket/packet.h"

namespace tandem::rpc {

// A call, from its request to its end. Guarded by the connection's mutex until it has ended.
struct Exchange {
  enum class End { kNone, kReplied, kCancelled, kLost };
  End end = End::kNone;
  std::uint64_t call = 0;
  std::string reply;  // the bytes of its frame
  std::string why;    // it was lost
  bool waits = false;
  std::condition_variable changed;
};

// Thread-safe. It has no thread: those that wait for replies take turns in reading, and each passes
// the others' replies on.
class Connection {
 public:
  struct Options {
    std::string credential, caller;
    std::size_t largest_reply = 0;
    std::chrono::milliseconds silence_limit{0};  // a server that does not answer is lost after it
    std::shared_ptr<PeerAreas> areas;            // of replies that have no caller any more
  };
  // Null if the server cannot be reached in this way.
  static std::shared_ptr<Connection> open(const UnixAddress& address, Options options);
  Connection(Socket socket, Socket interrupt, int most_calls, Options options);

  // Sends a request. Null, and nothing was sent, if the connection is lost, or has no room.
  std::shared_ptr<Exchange> start(const std::string& method, const Frame& request,
                                  std::chrono::milliseconds limit);
  // Whether it has ended. wait() waits for that until `end`.
  bool has_ended(Exchange& exchange);
  bool wait(Exchange& exchange, Clock::time_point end);
  // Ends it, and the server no longer answers; false if it has ended.
  bool cancel(Exchange& exchange);
  // Frees the attachments in shared memory of a reply that is not used.
  void discard(std::span<const std::byte> reply);
  bool is_lost() const;

 private:
  using Lock = std::unique_lock<std::mutex>;

  bool send(const std::string& packet, bool waits);
  std::shared_ptr<Exchange> add();
  void read(Clock::time_point end);
  bool receive();
  void handle(const Packet& packet);
  void add_reply(Exchange& exchange, const Packet& packet);
  void finish(Exchange& exchange, Exchange::End end);
  Clock::time_point check_silence();
  void hand_over();
  void lose(const std::string& why);

  const Socket socket_, interrupt_;  // the second wakes the thread that reads
  const std::size_t most_calls_;
  const Options options_;
  std::vector<std::byte> buffer_;  // of the thread that reads

  mutable std::mutex mutex_;  // guards the following
  std::map<std::uint64_t, std::shared_ptr<Exchange>> calls_;
  std::uint64_t last_call_ = 0;
  bool reading_ = false;
  bool lost_ = false;        // no call begins any more
  Clock::time_point heard_;  // the last packet of the server, or the first of these calls
  std::optional<Clock::time_point> pinged_;  // since then
};

}  // namespace tandem::rpc
