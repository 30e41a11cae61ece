// Identifies the host of a process.
#pragma once

#include <string>

namespace tandem {

// A string that is equal for processes of one host and different for other hosts. A network
// namespace counts as a host of its own.
std::string host_identity();

// The name of this host in error messages.
std::string host_name();

}  // namespace tandem
