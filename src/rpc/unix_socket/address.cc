#include "rpc/unix_socket/address.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstring>

#include "core/random_number.h"
#include "core/status.h"

namespace tandem::rpc {
namespace {

constexpr std::string_view kPrefix = "tandem-rpc-";
constexpr std::size_t kDigits = 32;
constexpr int kMostCalls = 1 << 20, kBacklog = 128;

struct SystemAddress {
  explicit SystemAddress(const std::string& name) {
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path + 1, name.data(), name.size());  // abstract: after a zero
    size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  }
  sockaddr_un address = {};
  socklen_t size = 0;
};

// Packets keep their boundaries and their order.
Socket make_socket() {
  return Socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

bool is_own_user(const Socket& socket) {
  ucred peer = {};
  socklen_t size = sizeof(peer);
  return getsockopt(socket.descriptor(), SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
         peer.uid == geteuid();
}

}  // namespace

UnixAddress UnixAddress::make(int calls) {
  return {fmt::format("{}{:016x}{:016x}", kPrefix, random_number(), random_number()),
          std::min(calls, kMostCalls)};
}

std::string UnixAddress::text() const { return fmt::format("{} {}", name, calls); }

std::optional<UnixAddress> UnixAddress::parse(std::string_view text) {
  constexpr std::size_t kName = kPrefix.size() + kDigits;
  const auto is_digit = [](char letter) {
    return (letter >= '0' && letter <= '9') || (letter >= 'a' && letter <= 'f');
  };
  if (!text.starts_with(kPrefix) || text.size() < kName + 2 || text[kName] != ' ' ||
      !std::all_of(text.begin() + kPrefix.size(), text.begin() + kName, is_digit))
    return std::nullopt;
  UnixAddress address{std::string(text.substr(0, kName)), 0};
  const char* const end = text.data() + text.size();
  const auto [last, error] = std::from_chars(text.data() + kName + 1, end, address.calls);
  if (error != std::errc() || last != end || address.calls < 1 || address.calls > kMostCalls)
    return std::nullopt;
  return address;
}

Socket listen_on(const UnixAddress& address) {
  Socket socket = make_socket();
  const SystemAddress system(address.name);
  if (!socket.is_open() ||
      bind(socket.descriptor(), reinterpret_cast<const sockaddr*>(&system.address), system.size) ||
      listen(socket.descriptor(), kBacklog))
    fail<UnavailableError>("[rpc] cannot listen on a Unix socket: {}", std::strerror(errno));
  return socket;
}

Socket connect_to(const UnixAddress& address) {
  Socket socket = make_socket();
  const SystemAddress system(address.name);
  if (!socket.is_open() ||
      connect(socket.descriptor(), reinterpret_cast<const sockaddr*>(&system.address),
              system.size) ||
      !is_own_user(socket))
    return {};
  return socket;
}

Socket accept_from_own_user(const Socket& listener) {
  while (true) {
    Socket socket(accept4(listener.descriptor(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!socket.is_open() || is_own_user(socket)) return socket;
  }
}

}  // namespace tandem::rpc
