// Exchange of byte strings of different lengths between ranks.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "comm/communicator.h"

namespace tandem {

// Returns every rank's bytes, in the order of the ranks. A collective call, for small control data:
// every rank sends as many bytes as the longest string has.
std::vector<std::string> exchange_bytes(Communicator& communicator, std::string_view mine);

}  // namespace tandem
