// TCP sockets with a deadline on every wait.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tandem {

using Clock = std::chrono::steady_clock;

// A time limit that starts now.
struct TimeLimit {
  explicit TimeLimit(std::chrono::milliseconds time) : length(time), end(Clock::now() + time) {}
  std::chrono::milliseconds length;
  Clock::time_point end;
};

// An open file descriptor, closed by the destructor.
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

// A non-blocking listening socket. Port 0: any free port. Throws AlreadyExistsError if the port is
// in use, InvalidArgumentError, with `who`, if the address is not this host's.
Socket listen_on(const Endpoint& endpoint, const char* who = "rank 0");
// Where a listener accepts connections to all addresses of this host.
std::string any_address();
// A free port, bound but not listening. While the socket is open no other process is assigned the
// port, but a server may listen on it.
Socket reserve_port(const std::string& host);
std::uint16_t port_of(const Socket& listener);
// The address and port that a socket is bound to, as numbers.
Endpoint endpoint_of(const Socket& socket);
// The numeric address of a connection's peer; empty if it has closed the connection.
std::string peer_of(const Socket& socket);
// The next connection, non-blocking; not open if there is none. Throws ResourceExhaustedError at
// this process's descriptor limit.
Socket accept_from(const Socket& listener);

// Starts to connect to the first address of the endpoint. Writable once it has succeeded or failed.
Socket start_connecting(const Endpoint& endpoint);
// The result of start_connecting(): 0 or an errno.
int connect_error(const Socket& socket);
// A non-blocking connection. Tries the addresses of a host name in turn, each for its share of the
// remaining time. Throws UnavailableError with the system's reason, NotFoundError for an unknown
// host name, ResourceExhaustedError at this process's descriptor limit.
Socket connect_to(const Endpoint& endpoint, Clock::time_point deadline);
// Whether data arrives, or the peer closes the connection, before the deadline.
bool wait_readable(const Socket& socket, Clock::time_point deadline);
// Throw UnavailableError if the peer has closed the connection, DeadlineExceededError at the
// deadline.
void send_all(const Socket& socket, std::string_view bytes, Clock::time_point deadline);
// The bytes that have arrived; may be empty. Does not wait.
std::string receive_some(const Socket& socket);
void receive_exactly(const Socket& socket, char* bytes, std::size_t count,
                     Clock::time_point deadline);

// Whether a server at `host` is unreachable from other hosts. Throws NotFoundError for an unknown
// host name.
bool is_loopback(const std::string& host);
// Whether it is a numeric address.
bool is_numeric(const std::string& host);

}  // namespace tandem
