// Converts tensors to operations, and results of operations to tensors.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "hvd/operation.h"
#include "hvd/process_set_coordinator.h"

namespace tandem::hvd {

// `name`, or a default name for the n-th unnamed operation of that kind: "allreduce.noname.3".
std::string name_or_next(const std::string& name, std::string_view kind);

// `tensor` or a copy of it in memory that the host can access. Waits for its elements.
Tensor on_host(const Tensor& tensor);

// Makes an operation on `tensors` and fills in the request's dtypes, shapes and device. Floating
// elements are sent as `compression` says.
OperationRef make_operation(Request request, const std::vector<Tensor>& tensors,
                            Compression compression,
                            std::shared_ptr<ProcessSetCoordinator> coordinator);
// Allocates results of the inputs' shapes.
void make_outputs(Handle::State& operation);

// Throws InvalidArgumentError for a dtype or a number of ranks that `op` does not support.
void check_reduction(std::string_view what, Op op, DType dtype, int ranks);

DType wire_dtype(DType dtype, Compression compression);

}  // namespace tandem::hvd
