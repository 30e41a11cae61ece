// How many descriptors (files, sockets) this process may have open.
#pragma once

#include <cstdint>
#include <string_view>

namespace tandem {

// Of a server per rank: a rank's membership and its store each have a connection.
inline constexpr std::int64_t kDescriptorsARank = 2;
inline constexpr std::int64_t kOwnDescriptors = 16;  // of a process, besides

// Sees to it that `count` may be open, by raising the soft limit to the hard one. Throws
// ResourceExhaustedError, naming `what` needs them, when the hard limit is lower.
void require_descriptors(std::int64_t count, std::string_view what);

// Whether a call failed because no more may be opened, by its errno.
bool is_out_of_descriptors(int error);
// Throws ResourceExhaustedError that names the limit.
[[noreturn]] void fail_for_want_of_descriptors();

}  // namespace tandem
