// Addresses of Unix sockets.
#pragma once

#include <string>
#include <string_view>

namespace tandem {

inline constexpr std::string_view kUnixPrefix = "unix:";

// PATH of an address "unix:PATH", as gRPC writes it. Empty for any other address.
inline std::string unix_path_of(std::string_view address) {
  if (!address.starts_with(kUnixPrefix)) return {};
  return std::string(address.substr(kUnixPrefix.size()));
}

}  // namespace tandem
