#include "runtime/example_weights.h"

namespace tandem {

constinit thread_local bool weighted_by_examples = false;

}  // namespace tandem
