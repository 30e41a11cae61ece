// Receives calls of tasks of the same host over Unix sockets, beside a server that others reach
// over the network.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "rpc/service/handler_threads.h"
#include "rpc/service/service.h"
#include "rpc/unix_socket/address.h"
#include "rpc/unix_socket/server_connection.h"

namespace tandem::rpc {

// Thread-safe.
class UnixServer {
 public:
  // Listens from now on. The service and the threads have to outlive it. Throws UnavailableError
  // and ResourceExhaustedError.
  UnixServer(Service& service, HandlerThreads& threads);
  // Stops at once, and closes all connections.
  ~UnixServer();

  // UnixAddress::text(), for callers.
  std::string address() const { return address_.text(); }
  // Refuses new calls, and cancels those that run longer than until `end`.
  void begin_to_stop(Clock::time_point end);
  // Returns when all handlers have returned. REQUIRES: begin_to_stop().
  void wait();

 private:
  class Listener;

  const std::shared_ptr<ServerCalls> calls_;
  const UnixAddress address_;
  const std::shared_ptr<Listener> listener_;
};

}  // namespace tandem::rpc
