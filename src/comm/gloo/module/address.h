// Which of this machine's addresses a group listens on.
#pragma once

#include <string>

#include "comm/gloo/gloo_backend.h"

namespace tandem::gloo_backend {

// Tells machines apart, and network namespaces of one machine, whose loopbacks differ too.
std::string identity_of_host();

// The address of this machine from which `master` is reached, as a number. Empty when there is none
// or it is a loopback's.
std::string address_towards(const std::string& master);
// That of the first interface that is up and no loopback; empty when there is none.
std::string first_address();

}  // namespace tandem::gloo_backend
