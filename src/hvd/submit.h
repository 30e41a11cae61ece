// From tensors to operations and back.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "hvd/lane.h"
#include "hvd/operation.h"

namespace tandem::hvd {

// `name`, or one for the n-th unnamed operation of that kind: "allreduce.noname.3".
std::string name_or_next(const std::string& name, std::string_view kind);

// Where the host reaches the elements of `tensor`, which may be copied and waited for.
Tensor on_host(const Tensor& tensor);

// An operation on `tensors`, which become its inputs; the request's dtypes, shapes and place are
// filled in. `compression` is in which dtype floating elements travel.
OperationRef make_operation(Request request, const std::vector<Tensor>& tensors,
                            Compression compression, std::shared_ptr<Lane> lane);
// New tensors for results of the inputs' shapes.
void make_outputs(Handle::State& operation);

// Throws InvalidArgumentError for dtypes, factors and numbers of ranks that `op` cannot do.
void check_reduction(std::string_view what, Op op, DType dtype, int ranks);

DType wire_dtype(DType dtype, Compression compression);

}  // namespace tandem::hvd
