// Processes of one or several hosts that are connected by TCP, through the Gloo library.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "comm/membership.h"
#include "comm/process/backend.h"
#include "comm/store.h"

namespace tandem {

struct GlooOptions {
  std::shared_ptr<Store> store;  // where the ranks find each other's addresses
  std::string name;              // of the group: the same on every rank, and no other group's
  int rank = 0;
  int size = 1;
  RankNames names = {};  // what errors call the group's ranks
  // What to listen on: a network interface, else a host name or address of this machine. Neither:
  // the interface $GLOO_SOCKET_IFNAME, as in PyTorch; without it loopback when all ranks are on
  // this host; else the address from which `master` is reached; else that of the first interface.
  std::string interface;
  std::string address;
  std::string master;                                               // where the store is
  std::chrono::milliseconds time_limit = std::chrono::minutes(30);  // for all ranks to be there
  std::shared_ptr<const Membership> membership;                     // null: none is asked
};

// Whether this build has the backend, and this machine the library.
bool has_gloo();

// Waits until every rank has called this. Throws DeadlineExceededError naming the ranks that have
// not, UnavailableError when they cannot be reached, InvalidArgumentError for an interface or
// address that this machine has not, UnavailableError when there is no Gloo.
std::unique_ptr<Backend> make_gloo_backend(GlooOptions options);

}  // namespace tandem
