// Bytes of any number between ranks.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "comm/communicator.h"

namespace tandem {

// Every rank's bytes, in the order of the ranks. Every rank calls it. For agreements, not for data:
// each rank sends as much as the one that has most.
std::vector<std::string> exchange_bytes(Communicator& communicator, std::string_view mine);

}  // namespace tandem
