#include "comm/rendezvous/socket.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>

#include "comm/host_identity.h"
#include "comm/rendezvous/descriptors.h"
#include "core/status.h"

namespace tandem {
namespace {

using Addresses = std::unique_ptr<addrinfo, void (*)(addrinfo*)>;

// The addresses of a host name; never empty.
Addresses resolve(const Endpoint& endpoint, int flags) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error =
      getaddrinfo(endpoint.host.c_str(), std::to_string(endpoint.port).c_str(), &hints, &found);
  if (error == EAI_SYSTEM && is_out_of_descriptors(errno)) fail_out_of_descriptors();
  if (error != 0 || found == nullptr)
    fail<NotFoundError>("[rendezvous] no address is known for '{}': {}", endpoint.host,
                        gai_strerror(error));
  return {found, freeaddrinfo};
}

bool is_loopback(const sockaddr* address) {
  if (address->sa_family == AF_INET) {
    sockaddr_in v4;
    std::memcpy(&v4, address, sizeof(v4));
    return (ntohl(v4.sin_addr.s_addr) >> 24) == 127;
  }
  if (address->sa_family == AF_INET6) {
    sockaddr_in6 v6;
    std::memcpy(&v6, address, sizeof(v6));
    return IN6_IS_ADDR_LOOPBACK(&v6.sin6_addr);
  }
  return false;
}

Socket open_socket(const addrinfo& address) {
  Socket socket(::socket(address.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket.is_open() && is_out_of_descriptors(errno)) fail_out_of_descriptors();
  if (!socket.is_open())
    fail<ResourceExhaustedError>("[rendezvous] cannot open a socket: {}", std::strerror(errno));
  return socket;
}

// Allows binding despite an earlier job's connections in TIME_WAIT, or a reservation.
void share_address(const Socket& socket) {
  const int on = 1;
  setsockopt(socket.descriptor(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
}

// "::" accepts IPv4 connections, too, whatever the system's default is.
void serve_both_families(const Socket& socket, const sockaddr* address) {
  if (address->sa_family != AF_INET6) return;
  const int off = 0;
  setsockopt(socket.descriptor(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
}

// Whether there are events before the deadline.
bool wait_for(const Socket& socket, short events, Clock::time_point deadline) {
  while (true) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd entry = {socket.descriptor(), events, 0};
    const int ready =
        poll(&entry, 1, static_cast<int>(std::clamp<std::int64_t>(left + 1, 0, 60'000)));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR)
      fail<UnavailableError>("[rendezvous] poll: {}", std::strerror(errno));
    if (ready == 0 && Clock::now() >= deadline) return false;
  }
}

Endpoint in_numbers(const sockaddr_storage& address, socklen_t size) {
  std::array<char, NI_MAXHOST> host = {};
  std::array<char, NI_MAXSERV> port = {};
  getnameinfo(reinterpret_cast<const sockaddr*>(&address), size, host.data(), host.size(),
              port.data(), port.size(), NI_NUMERICHOST | NI_NUMERICSERV);
  return {host.data(), static_cast<std::uint16_t>(std::atoi(port.data()))};
}

// Returns 0 or an errno.
int connect_one(const Socket& socket, const addrinfo& address, Clock::time_point deadline) {
  if (connect(socket.descriptor(), address.ai_addr, address.ai_addrlen) == 0) return 0;
  if (errno != EINPROGRESS) return errno;
  if (!wait_for(socket, POLLOUT, deadline)) return ETIMEDOUT;
  return connect_error(socket);
}

void send_at_once(const Socket& socket) {
  const int on = 1;
  setsockopt(socket.descriptor(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

[[noreturn]] void fail_on_peer() {
  if (errno == ECONNRESET || errno == EPIPE)
    fail<UnavailableError>("[rendezvous] the peer closed the connection");
  // Other ranks may get this text, too.
  if (errno == EBADF || errno == ENOTSOCK)
    fail<UnavailableError>(
        "[rendezvous] process {} on {} has lost a connection to the job's server: other code of "
        "the process has closed descriptors that it did not open",
        getpid(), host_name());
  fail<UnavailableError>("[rendezvous] {}", std::strerror(errno));
}

}  // namespace

Socket& Socket::operator=(Socket&& other) noexcept {
  if (this != &other) {
    close();
    descriptor_ = other.release();
  }
  return *this;
}

int Socket::release() { return std::exchange(descriptor_, -1); }

void Socket::close() {
  if (descriptor_ >= 0) ::close(release());
}

std::string to_string(const Endpoint& endpoint) {
  const bool colons = endpoint.host.find(':') != std::string::npos;
  return fmt::format(fmt::runtime(colons ? "[{}]:{}" : "{}:{}"), endpoint.host, endpoint.port);
}

Socket reserve_port(const std::string& host) {
  const Addresses addresses = resolve({host, 0}, AI_PASSIVE);
  Socket socket = open_socket(*addresses);
  share_address(socket);
  if (bind(socket.descriptor(), addresses->ai_addr, addresses->ai_addrlen) != 0)
    fail<ResourceExhaustedError>("[rendezvous] there is no free port at {}: {}", host,
                                 std::strerror(errno));
  return socket;
}

Socket listen_on(const Endpoint& endpoint, const char* who) {
  const Addresses addresses = resolve(endpoint, AI_PASSIVE);
  Socket socket = open_socket(*addresses);
  share_address(socket);
  serve_both_families(socket, addresses->ai_addr);
  if (bind(socket.descriptor(), addresses->ai_addr, addresses->ai_addrlen) != 0 ||
      listen(socket.descriptor(), SOMAXCONN) != 0) {
    const int error = errno;
    const std::string what =
        fmt::format("[rendezvous] The server socket has failed to bind to {} (errno: {} - {})",
                    to_string(endpoint), error, std::strerror(error));
    if (error == EADDRINUSE && endpoint.port == 0)
      fail<ResourceExhaustedError>("{}: this host has no free port (net.ipv4.ip_local_port_range)",
                                   what);
    if (error == EADDRINUSE)
      fail<AlreadyExistsError>(
          "{}: another job or program listens there; give this job another port", what);
    if (error == EADDRNOTAVAIL)
      fail<InvalidArgumentError>("{}: {} has to run where this address is", what, who);
    fail<UnavailableError>("{}", what);
  }
  return socket;
}

std::string any_address() {
  const Socket socket(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  return socket.is_open() ? "::" : "0.0.0.0";
}

std::uint16_t port_of(const Socket& listener) { return endpoint_of(listener).port; }

Endpoint endpoint_of(const Socket& socket) {
  sockaddr_storage address = {};
  socklen_t size = sizeof(address);
  if (getsockname(socket.descriptor(), reinterpret_cast<sockaddr*>(&address), &size) != 0)
    fail<UnavailableError>("[rendezvous] a socket has no address: {}", std::strerror(errno));
  return in_numbers(address, size);
}

std::string peer_of(const Socket& socket) {
  sockaddr_storage address = {};
  socklen_t size = sizeof(address);
  if (getpeername(socket.descriptor(), reinterpret_cast<sockaddr*>(&address), &size) != 0)
    return "";
  return in_numbers(address, size).host;
}

Socket accept_from(const Socket& listener) {
  Socket socket(accept4(listener.descriptor(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (socket.is_open()) send_at_once(socket);
  // The system reports this even if no connection is waiting.
  if (!socket.is_open() && is_out_of_descriptors(errno)) {
    const int error = errno;
    if (!wait_readable(listener, Clock::now())) return {};
    errno = error;
    fail_out_of_descriptors();
  }
  return socket;
}

Socket start_connecting(const Endpoint& endpoint) {
  const Addresses addresses = resolve(endpoint, 0);
  Socket socket = open_socket(*addresses);
  const bool started =
      connect(socket.descriptor(), addresses->ai_addr, addresses->ai_addrlen) == 0 ||
      errno == EINPROGRESS;
  if (!started && errno == EADDRNOTAVAIL)
    fail<ResourceExhaustedError>(
        "[rendezvous] cannot connect to {}: this host has no free port for another connection "
        "(net.ipv4.ip_local_port_range)",
        to_string(endpoint));
  if (!started)
    fail<UnavailableError>("[rendezvous] cannot connect to {}: {}", to_string(endpoint),
                           std::strerror(errno));
  send_at_once(socket);
  return socket;
}

int connect_error(const Socket& socket) {
  int error = 0;
  socklen_t size = sizeof(error);
  getsockopt(socket.descriptor(), SOL_SOCKET, SO_ERROR, &error, &size);
  return error;
}

Socket connect_to(const Endpoint& endpoint, Clock::time_point deadline) {
  const Addresses addresses = resolve(endpoint, 0);
  int error = 0, left = 0;
  for (const addrinfo* each = addresses.get(); each != nullptr; each = each->ai_next) ++left;
  for (const addrinfo* each = addresses.get(); each != nullptr; each = each->ai_next, --left) {
    Socket socket = open_socket(*each);
    const Clock::time_point now = Clock::now();
    error = connect_one(socket, *each, now + (deadline - now) / left);
    if (error != 0) continue;
    send_at_once(socket);
    return socket;
  }
  fail<UnavailableError>("[rendezvous] cannot connect to {}: {}", to_string(endpoint),
                         std::strerror(error));
}

void send_all(const Socket& socket, std::string_view bytes, Clock::time_point deadline) {
  while (!bytes.empty()) {
    const ssize_t sent = send(socket.descriptor(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent >= 0) {
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    } else if (errno == EAGAIN) {
      if (!wait_for(socket, POLLOUT, deadline))
        fail<DeadlineExceededError>("[rendezvous] the peer does not read");
    } else if (errno != EINTR) {
      fail_on_peer();
    }
  }
}

bool wait_readable(const Socket& socket, Clock::time_point deadline) {
  return wait_for(socket, POLLIN, deadline);
}

std::string receive_some(const Socket& socket) {
  std::string bytes(std::size_t{64} << 10, '\0');
  const ssize_t received = recv(socket.descriptor(), bytes.data(), bytes.size(), 0);
  if (received == 0) fail<UnavailableError>("[rendezvous] the peer closed the connection");
  if (received < 0 && errno != EAGAIN && errno != EINTR) fail_on_peer();
  bytes.resize(static_cast<std::size_t>(std::max<ssize_t>(received, 0)));
  return bytes;
}

void receive_exactly(const Socket& socket, char* bytes, std::size_t count,
                     Clock::time_point deadline) {
  while (count > 0) {
    const ssize_t received = recv(socket.descriptor(), bytes, count, 0);
    if (received > 0) {
      bytes += received;
      count -= static_cast<std::size_t>(received);
    } else if (received == 0) {
      fail<UnavailableError>("[rendezvous] the peer closed the connection");
    } else if (errno == EAGAIN) {
      if (!wait_for(socket, POLLIN, deadline))
        fail<DeadlineExceededError>("[rendezvous] the peer is silent");
    } else if (errno != EINTR) {
      fail_on_peer();
    }
  }
}

bool is_numeric(const std::string& host) {
  in6_addr address = {};
  return inet_pton(AF_INET, host.c_str(), &address) == 1 ||
         inet_pton(AF_INET6, host.c_str(), &address) == 1;
}

bool is_loopback(const std::string& host) {
  const Addresses addresses = resolve({host, 0}, 0);
  for (const addrinfo* each = addresses.get(); each != nullptr; each = each->ai_next)
    if (!is_loopback(each->ai_addr)) return false;
  return true;
}

}  // namespace tandem
