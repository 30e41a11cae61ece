// Checks of results for NaN and infinities.
#pragma once

#include <atomic>

namespace tandem {

// Whether results of operations are checked (debugging::enable_check_numerics).
extern constinit std::atomic<bool> numerics_checked;
inline bool checks_numerics() { return numerics_checked.load(std::memory_order_relaxed); }

}  // namespace tandem
