#include "comm/mpi/module/types.h"

namespace tandem::mpi_backend {

MPI_Datatype type_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat32: return MPI_FLOAT;
    case DType::kFloat64: return MPI_DOUBLE;
    case DType::kFloat16:
    case DType::kBFloat16: return MPI_UINT16_T;
    case DType::kInt32: return MPI_INT32_T;
    case DType::kInt64: return MPI_INT64_T;
    case DType::kUInt8:
    case DType::kBool: break;
  }
  return MPI_UINT8_T;
}

}  // namespace tandem::mpi_backend
