// Which of this machine's addresses a group listens on.
#pragma once

#include <string>

#include "comm/gloo/gloo_backend.h"

namespace tandem::gloo_backend {

// The address of this machine from which `master` is reached, as a number. Empty when there is none
// or it is a loopback's.
std::string address_towards(const std::string& master);
// That of the first interface that is up and no loopback; empty when there is none.
std::string first_address();
// The first address of an interface; empty when it has none, or is not here.
std::string address_of_interface(const std::string& name);

}  // namespace tandem::gloo_backend
