#include "op/numerics.h"

namespace tandem {

constinit thread_local const std::string* called_layer = nullptr;
constinit thread_local const OpNode* differentiated = nullptr;
constinit std::atomic<bool> numerics_checked{false};

}  // namespace tandem
