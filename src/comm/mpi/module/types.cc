#include "comm/mpi/module/types.h"

#include <algorithm>
#include <map>

#include "comm/mpi/module/session.h"
#include "core/status.h"

namespace tandem::mpi_backend {
namespace {

template <class T, ReduceOp op>
void combine_halves(void* in, void* in_out, int* count, MPI_Datatype*) {
  const auto* a = static_cast<const T*>(in);
  auto* b = static_cast<T*>(in_out);
  for (int i = 0; i < *count; ++i) {
    const auto x = static_cast<float>(a[i]), y = static_cast<float>(b[i]);
    if constexpr (op == ReduceOp::kMin)
      b[i] = static_cast<T>(std::min(x, y));
    else if constexpr (op == ReduceOp::kMax)
      b[i] = static_cast<T>(std::max(x, y));
    else if constexpr (op == ReduceOp::kProduct)
      b[i] = static_cast<T>(x * y);
    else
      b[i] = static_cast<T>(x + y);
  }
}

template <class T>
MPI_User_function* function_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::kMin: return combine_halves<T, ReduceOp::kMin>;
    case ReduceOp::kMax: return combine_halves<T, ReduceOp::kMax>;
    case ReduceOp::kProduct: return combine_halves<T, ReduceOp::kProduct>;
    case ReduceOp::kSum:
    case ReduceOp::kMean: break;
  }
  return combine_halves<T, ReduceOp::kSum>;
}

}  // namespace

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

MPI_Op op_of(DType dtype, ReduceOp op) {
  if (dtype == DType::kFloat16 || dtype == DType::kBFloat16) {
    static std::map<std::pair<DType, ReduceOp>, MPI_Op> made;
    MPI_Op& known = made.emplace(std::pair(dtype, op), MPI_OP_NULL).first->second;
    if (known == MPI_OP_NULL)
      check(MPI_Op_create(
                dtype == DType::kFloat16 ? function_of<Half>(op) : function_of<BFloat16>(op), 1,
                &known),
            "MPI_Op_create");
    return known;
  }
  switch (op) {
    case ReduceOp::kMin: return MPI_MIN;
    case ReduceOp::kMax: return MPI_MAX;
    case ReduceOp::kProduct: return MPI_PROD;
    case ReduceOp::kSum:
    case ReduceOp::kMean: break;
  }
  return MPI_SUM;
}

}  // namespace tandem::mpi_backend
