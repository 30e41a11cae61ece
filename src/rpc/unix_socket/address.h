// Where a server listens for tasks of its host: an abstract Unix socket. It belongs to a network
// namespace, no file represents it, and its name cannot be guessed. The server announces it to
// callers that have proved that they belong to the job.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "comm/rendezvous/socket.h"

namespace tandem::rpc {

struct UnixAddress {
  std::string name;
  int calls = 0;  // the most at the same time over one connection

  // A new name.
  static UnixAddress make(int calls);
  std::string text() const;
  // Nothing for anything but text().
  static std::optional<UnixAddress> parse(std::string_view text);
};

// A non-blocking listening socket. Throws UnavailableError if there are no such sockets.
Socket listen_on(const UnixAddress& address);
// A non-blocking connection to a server of this user; not open if there is none.
Socket connect_to(const UnixAddress& address);
// The next connection of this user, non-blocking; not open if there is none. Closes those of
// others.
Socket accept_from_own_user(const Socket& listener);

}  // namespace tandem::rpc
