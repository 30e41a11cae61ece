// The server's side of a connection over a Unix socket.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "comm/rendezvous/socket.h"
#include "rpc/service/handler_threads.h"
#include "rpc/service/service.h"
#include "rpc/unix_socket/packet.h"

namespace tandem::rpc {

// The calls of all connections of a server. Thread-safe.
class ServerCalls {
 public:
  ServerCalls(Service& its_service, HandlerThreads& its_threads)
      : service(its_service), threads(its_threads) {}

  // A call that is running until nothing owns this. Null if the server stops.
  std::shared_ptr<void> begin();
  // No call begins any more, and those that run at this time are cancelled.
  void stop_at(Clock::time_point end);
  bool has_stopped() const;
  // Until all have ended.
  void wait();

  // Count the bytes of replies that wait for room in a socket. The first returns false if there
  // would be more than ServerOptions::memory_limit.
  bool try_to_queue(std::size_t bytes);
  void queue(std::size_t bytes) { queued_ += bytes; }
  void unqueue(std::size_t bytes) { queued_ -= bytes; }

  Service& service;
  HandlerThreads& threads;

 private:
  void end();

  std::atomic<std::size_t> queued_ = 0;
  mutable std::mutex mutex_;  // guards the following
  std::condition_variable changed_;
  int running_ = 0;
  std::optional<Clock::time_point> stops_at_;
};

class ServedUnixCall;

class ServerConnection final : public Source,
                               public std::enable_shared_from_this<ServerConnection> {
 public:
  ServerConnection(std::shared_ptr<ServerCalls> server, Socket socket);
  ~ServerConnection() override;

  int descriptor() const override { return socket_.descriptor(); }
  void ready() override;
  // Whether the peer has proved that it belongs to the job.
  bool greeted() const { return greeted_; }
  // The peer sees the end of the connection, and its calls are cancelled.
  void close();

 private:
  friend class ServedUnixCall;

  bool receive();
  bool handle(const Packet& packet);
  bool greet(const Packet& packet);
  void start(const Packet& packet);
  void cancel(std::uint64_t call);
  void forget(std::uint64_t call);
  void refuse(std::uint64_t call, std::string_view why);
  void reply(std::uint64_t call, const std::string& method, const Frame& frame);
  void send(std::string packet);
  bool flush();
  bool write(const std::string& packet);

  const std::shared_ptr<ServerCalls> server_;
  const Socket socket_;
  std::atomic<bool> greeted_ = false, lost_ = false;
  // Set by the greeting.
  std::string caller_;
  std::optional<ProcessIdentity> neighbor_;
  std::size_t largest_reply_ = 0;

  std::mutex read_mutex_;  // one thread reads at a time
  std::vector<std::byte> buffer_;

  std::mutex mutex_;  // guards the following
  std::map<std::uint64_t, std::shared_ptr<ServedUnixCall>> calls_;
  std::deque<std::string> unsent_;  // packets
};

}  // namespace tandem::rpc
