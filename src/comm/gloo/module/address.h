// Chooses the address of this host that a group listens on.
#pragma once

#include <string>

#include "comm/gloo/gloo_backend.h"

namespace tandem::gloo_backend {

// The address of this host from which `master` is reached, as a number. Empty if there is none or
// it is a loopback address.
std::string address_towards(const std::string& master);
// The address of the first interface that is up and not a loopback; empty if there is none.
std::string first_address();
// The first address of an interface; empty if the interface has none or does not exist.
std::string address_of_interface(const std::string& name);

}  // namespace tandem::gloo_backend
