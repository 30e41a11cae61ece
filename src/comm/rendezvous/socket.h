// TCP sockets with a limit on every wait.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tandem {

using Clock = std::chrono::steady_clock;

// How long the ranks of a job are waited for, from now on.
struct TimeLimit {
  explicit TimeLimit(std::chrono::milliseconds time) : length(time), end(Clock::now() + time) {}
  std::chrono::milliseconds length;
  Clock::time_point end;
};

// An open descriptor, closed with the object.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int descriptor) : descriptor_(descriptor) {}
  ~Socket() { close(); }
  Socket(Socket&& other) noexcept : descriptor_(other.release()) {}
  Socket& operator=(Socket&& other) noexcept;
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;

  bool is_open() const { return descriptor_ >= 0; }
  int descriptor() const { return descriptor_; }
  int release();
  void close();

 private:
  int descriptor_ = -1;
};

struct Endpoint {
  std::string host;
  std::uint16_t port = 0;
};
std::string to_string(const Endpoint& endpoint);  // "[::1]:80" for addresses with colons

// Listens, not blocking. Port 0: one that is free. Throws AlreadyExistsError when the port is
// taken, InvalidArgumentError, which names `who`, when the address is none of this machine's.
Socket listen_on(const Endpoint& endpoint, const char* who = "rank 0");
// A port that is free, bound but not listening: while the socket is open no other process is given
// the port, and a server may still listen there.
Socket reserve_port(const std::string& host);
std::uint16_t port_of(const Socket& listener);
// The address and port that a socket is bound to, as numbers.
Endpoint endpoint_of(const Socket& socket);
// The address of a connection's other end, as a number; empty when it has gone.
std::string peer_of(const Socket& socket);
// The next connection, not blocking; not open when there is none. Throws ResourceExhaustedError
// when this process may not open more descriptors.
Socket accept_from(const Socket& listener);

// Begins to connect to the first address of the endpoint: done, or in vain, when it is writable.
Socket start_connecting(const Endpoint& endpoint);
// The outcome of start_connecting(): 0, or the system's error.
int connect_error(const Socket& socket);
// A connection, not blocking. A name's addresses are tried one after the other, each for its share
// of the time that is left. Throws UnavailableError with the system's reason, NotFoundError when
// the name is not known, ResourceExhaustedError when this process may not open more descriptors.
Socket connect_to(const Endpoint& endpoint, Clock::time_point deadline);
// Whether there is something to read, or the peer has gone, before the deadline.
bool wait_readable(const Socket& socket, Clock::time_point deadline);
// Throw UnavailableError when the peer has gone, DeadlineExceededError at the deadline.
void send_all(const Socket& socket, std::string_view bytes, Clock::time_point deadline);
// What has arrived, or nothing. Does not wait.
std::string receive_some(const Socket& socket);
void receive_exactly(const Socket& socket, char* bytes, std::size_t count,
                     Clock::time_point deadline);

// Whether a peer on another machine could reach a server there. Throws NotFoundError when the name
// is not known.
bool is_loopback(const std::string& host);
// Whether it is a number, and no name.
bool is_numeric(const std::string& host);

}  // namespace tandem
