// For processes that share a machine by agreement.
#pragma once

namespace tandem {

// From now on this process uses at most so many cores, at least one.
void limit_available_cores(int cores);

}  // namespace tandem
