// Which processes share a host.
#pragma once

#include <string>

namespace tandem {

// The same text for processes of one host, and another for those of any other. A network namespace
// counts as a host of its own.
std::string host_identity();

// The name by which errors call this machine.
std::string host_name();

}  // namespace tandem
