#include "function/trace_gradient.h"

namespace tandem {

constinit Registered<std::shared_ptr<TraceGradient>(GraphImpl&, std::span<const Tensor>,
                                                    std::span<const Tensor>)>
    make_trace_gradient("make_trace_gradient");

}  // namespace tandem
