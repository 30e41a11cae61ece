// Limits this process's share of the host's cores.
#pragma once

namespace tandem {

// From now on this process uses at most `cores` cores, at least one.
void limit_available_cores(int cores);

}  // namespace tandem
