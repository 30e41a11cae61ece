// Maps dtypes to MPI types.
#pragma once

#include <mpi.h>

#include "tandem/dtype.h"

namespace tandem::mpi_backend {

MPI_Datatype type_of(DType dtype);

}  // namespace tandem::mpi_backend
