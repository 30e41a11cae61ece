#include "op/numerics.h"

namespace tandem {

constinit std::atomic<bool> numerics_checked{false};

}  // namespace tandem
