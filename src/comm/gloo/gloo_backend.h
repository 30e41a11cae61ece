// The backend for processes on one or several hosts, over TCP, with the Gloo library.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "comm/process/backend.h"
#include "comm/process/group_options.h"

namespace tandem {

// Where a rank listens: on a network interface, or a host name or address of this host. If neither
// is set, the interface $GLOO_SOCKET_IFNAME, as in PyTorch; without it the loopback if all ranks
// are on this host; otherwise the address from which `master` is reached; otherwise that of the
// first interface.
struct GlooAddress {
  std::string interface = {};
  std::string address = {};
  std::optional<bool> on_one_host = {};  // whether all ranks are; empty: they find out
  std::string master = {};               // the host of the store
};

// Whether this build has the backend and this host has the library.
bool has_gloo();

// Waits until every rank has called this. Throws DeadlineExceededError with the missing ranks,
// UnavailableError if ranks cannot be reached or there is no Gloo, InvalidArgumentError for an
// interface or address that this host does not have.
std::unique_ptr<Backend> make_gloo_backend(GroupOptions options, GlooAddress where = {});

}  // namespace tandem
