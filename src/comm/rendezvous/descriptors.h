// Limits on open file descriptors (files, sockets).
#pragma once

#include <cstdint>
#include <string_view>

namespace tandem {

// A server's connections per rank: one for the membership, one for the store.
inline constexpr std::int64_t kDescriptorsPerRank = 2;
inline constexpr std::int64_t kOwnDescriptors = 16;  // the process's other descriptors

// Ensures that `count` descriptors may be open, by raising the soft limit. Throws
// ResourceExhaustedError, which says that `what` needs them, if the hard limit is too low.
void require_descriptors(std::int64_t count, std::string_view what);

// Whether `error`, an errno, means that the descriptor limit is reached.
bool is_out_of_descriptors(int error);
// Throws ResourceExhaustedError with the limit.
[[noreturn]] void fail_out_of_descriptors();

}  // namespace tandem
