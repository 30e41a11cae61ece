// The cache of keys and values of the layer call that runs on this thread (nn/key_value_cache.h).
#pragma once

#include <atomic>
#include <cstdint>

namespace tandem {

// A base, so that the key of a function's trace can tell caches apart.
struct KeyValuesNumber {
  const std::uint64_t number = ++last;

 private:
  inline static constinit std::atomic<std::uint64_t> last{0};
};

// Null if there is none.
inline constinit thread_local KeyValuesNumber* open_key_values = nullptr;

}  // namespace tandem
