// Operations of a thread that builds a graph: they become nodes instead of running.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "graph/graph.h"

namespace tandem {

// Adds `op` to the graph that the thread is building; the results are symbolic. Recorded for
// gradients as a run would be. REQUIRES: building.
std::vector<Tensor> trace_op(const OpDef& op, std::span<const Tensor* const> inputs,
                             AttrsRef attrs);

// A tensor of elements that the host has, on the present device; a constant of the graph when the
// thread is building one.
Tensor new_constant(const Shape& shape, DType dtype, const void* host, std::string_view name);

// `tensor` under the name that the user gave it, where it is symbolic and the name is not empty.
Tensor named(Tensor tensor, std::string_view name);

}  // namespace tandem
