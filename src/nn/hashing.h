// Hashes of strings that TensorFlow uses, too.
#pragma once

#include <cstdint>
#include <string_view>

namespace tandem {

// FarmHash's Fingerprint64, which no later version changes.
std::uint64_t fingerprint64(std::string_view bytes);

// SipHash-2-4 (Aumasson and Bernstein 2012).
std::uint64_t siphash64(std::string_view bytes, std::uint64_t key0, std::uint64_t key1);

}  // namespace tandem
