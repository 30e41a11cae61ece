// MPI's types and operations for ours.
#pragma once

#include <mpi.h>

#include <cstdint>

#include "tandem/dtype.h"
#include "tandem/reduce_op.h"

namespace tandem::mpi_backend {

MPI_Datatype type_of(DType dtype);
// float16 and bfloat16 are combined in float32, and rounded after each step. kMean is a sum.
// REQUIRES: MPI is initialised, and the caller alone calls it.
MPI_Op op_of(DType dtype, ReduceOp op);

}  // namespace tandem::mpi_backend
