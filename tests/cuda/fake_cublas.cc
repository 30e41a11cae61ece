// A fake of the cuBLASLt functions that ops/cuda/module/blas.cc calls, on top of the fake of CUDA.
// It refuses what the real one refuses: incompatible types and epilogues, shapes, leading
// dimensions, and memory that is less aligned than the preference stated when the algorithm was
// requested.
#include <cublasLt.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "cuda/fake_cuda.h"

namespace tandem::fake_cuda {
namespace {

struct Matrix {
  cudaDataType_t type;
  std::uint64_t rows, columns;
  std::int64_t leading;
  std::int32_t batch = 1;
  std::int64_t stride = 0;
};
struct Product {
  cublasComputeType_t compute;
  cudaDataType_t scale;
  cublasOperation_t transpose_a = CUBLAS_OP_N, transpose_b = CUBLAS_OP_N;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;
};
struct Preference {
  std::uint64_t workspace = 0;
  std::uint32_t align_a = 256, align_b = 256, align_c = 256, align_d = 256;
  std::uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_MASK;  // all
};
// An algorithm of the fake.
struct Algorithm {
  std::uint64_t workspace;
  std::uint32_t align_a, align_b, align_c, align_d;
};
static_assert(sizeof(Algorithm) <= sizeof(cublasLtMatmulAlgo_t));

constexpr std::uint64_t kWorkspace = 4096;

Matrix& of(cublasLtMatrixLayout_t handle) { return *reinterpret_cast<Matrix*>(handle); }
Product& of(cublasLtMatmulDesc_t handle) { return *reinterpret_cast<Product*>(handle); }
Preference& of(cublasLtMatmulPreference_t handle) { return *reinterpret_cast<Preference*>(handle); }

template <class Value>
cublasStatus_t take(Value& value, const void* from, std::size_t bytes) {
  if (from == nullptr || bytes != sizeof(Value)) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&value, from, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

std::size_t size_of(cudaDataType_t type) {
  return type == CUDA_R_64F ? 8 : type == CUDA_R_32F ? 4 : 2;
}

bool has_bias(const Product& product) { return product.epilogue == CUBLASLT_EPILOGUE_BIAS; }

// The combinations in the table of cublasLtMatmul()'s documentation that have floating types and
// the same type for all matrices.
bool types_go_together(const Product& product, cudaDataType_t type) {
  switch (product.compute) {
    case CUBLAS_COMPUTE_64F: return type == CUDA_R_64F && product.scale == CUDA_R_64F;
    case CUBLAS_COMPUTE_32F_FAST_TF32: return type == CUDA_R_32F && product.scale == CUDA_R_32F;
    case CUBLAS_COMPUTE_32F:
      return (type == CUDA_R_32F || type == CUDA_R_16F || type == CUDA_R_16BF) &&
             product.scale == CUDA_R_32F;
    default: return false;
  }
}

cublasStatus_t examine(const Product& product, const Matrix& a, const Matrix& b, const Matrix& c,
                       const Matrix& d) {
  const auto turned = [](const Matrix& matrix, cublasOperation_t how) {
    Matrix result = matrix;
    if (how == CUBLAS_OP_T) std::swap(result.rows, result.columns);
    return result;
  };
  const Matrix left = turned(a, product.transpose_a), right = turned(b, product.transpose_b);
  for (const Matrix* each : {&a, &b, &c, &d}) {
    if (each->rows == 0 || each->columns == 0 || each->batch < 1)
      return CUBLAS_STATUS_INVALID_VALUE;
    if (each->leading < static_cast<std::int64_t>(each->rows)) return CUBLAS_STATUS_INVALID_VALUE;
    if (each->batch != d.batch || each->type != d.type) return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (left.rows != d.rows || right.columns != d.columns || left.columns != right.rows ||
      c.rows != d.rows || c.columns != d.columns)
    return CUBLAS_STATUS_INVALID_VALUE;
  if (!types_go_together(product, d.type)) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (product.epilogue != CUBLASLT_EPILOGUE_DEFAULT && d.type == CUDA_R_64F)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  if (has_bias(product)) {
    if (product.bias == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
    if (reinterpret_cast<std::uintptr_t>(product.bias) % 16 != 0)
      return CUBLAS_STATUS_NOT_SUPPORTED;
  } else if (product.epilogue != CUBLASLT_EPILOGUE_DEFAULT) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  return CUBLAS_STATUS_SUCCESS;
}

bool aligned(const void* memory, std::uint32_t bytes) {
  return reinterpret_cast<std::uintptr_t>(memory) % bytes == 0;
}

// d = alpha op(a) op(b) + beta c, then the epilogue. T is the element type, C the compute type.
template <class T, class C>
struct Multiply {
  Product product;
  Matrix a, b, c, d;
  C alpha, beta;
  const T *from_a, *from_b, *from_c;
  T* to;

  // Iterates over the matrix's columns or rows.
  static std::vector<C> spread(const T* from, const Matrix& matrix, bool by_column) {
    std::vector<C> values;
    values.reserve(matrix.rows * matrix.columns);
    const auto at = [&](std::uint64_t row, std::uint64_t column) {
      return static_cast<C>(from[column * static_cast<std::uint64_t>(matrix.leading) + row]);
    };
    if (by_column) {
      for (std::uint64_t j = 0; j < matrix.columns; ++j)
        for (std::uint64_t i = 0; i < matrix.rows; ++i) values.push_back(at(i, j));
    } else {
      for (std::uint64_t i = 0; i < matrix.rows; ++i)
        for (std::uint64_t j = 0; j < matrix.columns; ++j) values.push_back(at(i, j));
    }
    return values;
  }

  void operator()() const {
    const std::uint64_t inner = product.transpose_a == CUBLAS_OP_T ? a.rows : a.columns;
    for (std::int64_t n = 0; n < d.batch; ++n) {
      const std::vector<C> rows =
          spread(from_a + n * a.stride, a, product.transpose_a == CUBLAS_OP_T);
      const std::vector<C> columns =
          spread(from_b + n * b.stride, b, product.transpose_b == CUBLAS_OP_N);
      for (std::uint64_t j = 0; j < d.columns; ++j)
        for (std::uint64_t i = 0; i < d.rows; ++i) {
          C sum = C{0};
          for (std::uint64_t k = 0; k < inner; ++k)
            sum += rows[i * inner + k] * columns[j * inner + k];
          C value = alpha * sum;
          if (beta != C{0})
            value += beta *
                     static_cast<C>(from_c[n * c.stride + static_cast<std::int64_t>(j) * c.leading +
                                           static_cast<std::int64_t>(i)]);
          if (has_bias(product)) value += static_cast<C>(static_cast<const T*>(product.bias)[i]);
          to[n * d.stride + static_cast<std::int64_t>(j) * d.leading +
             static_cast<std::int64_t>(i)] = static_cast<T>(value);
        }
    }
  }
};

}  // namespace
}  // namespace tandem::fake_cuda

using namespace tandem::fake_cuda;

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  static int all_alike;
  *handle = reinterpret_cast<cublasLtHandle_t>(&all_alike);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t) { return CUBLAS_STATUS_SUCCESS; }
const char* cublasLtGetStatusName(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS: return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_INVALID_VALUE: return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_NOT_SUPPORTED: return "CUBLAS_STATUS_NOT_SUPPORTED";
    default: return "CUBLAS_STATUS_EXECUTION_FAILED";
  }
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* made, cudaDataType type,
                                          std::uint64_t rows, std::uint64_t columns,
                                          std::int64_t leading) {
  *made = reinterpret_cast<cublasLtMatrixLayout_t>(
      new Matrix{.type = type, .rows = rows, .columns = columns, .leading = leading});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t matrix) {
  return delete &of(matrix), CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t matrix,
                                                cublasLtMatrixLayoutAttribute_t which,
                                                const void* value, std::size_t bytes) {
  switch (which) {
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT: return take(of(matrix).batch, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET: return take(of(matrix).stride, value, bytes);
    default: return CUBLAS_STATUS_NOT_SUPPORTED;
  }
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* made, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  *made = reinterpret_cast<cublasLtMatmulDesc_t>(new Product{.compute = compute, .scale = scale});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t product) {
  return delete &of(product), CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t product,
                                              cublasLtMatmulDescAttributes_t which,
                                              const void* value, std::size_t bytes) {
  switch (which) {
    case CUBLASLT_MATMUL_DESC_TRANSA: return take(of(product).transpose_a, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB: return take(of(product).transpose_b, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE: return take(of(product).epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER: return take(of(product).bias, value, bytes);
    default: return CUBLAS_STATUS_NOT_SUPPORTED;
  }
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* made) {
  *made = reinterpret_cast<cublasLtMatmulPreference_t>(new Preference);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  return delete &of(preference), CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t which,
                                                    const void* value, std::size_t bytes) {
  Preference& mine = of(preference);
  switch (which) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES: return take(mine.workspace, value, bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK: return take(mine.reductions, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES: return take(mine.align_a, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES: return take(mine.align_b, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES: return take(mine.align_c, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES: return take(mine.align_d, value, bytes);
    default: return CUBLAS_STATUS_NOT_SUPPORTED;
  }
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t product,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t results[],
                                              int* found) {
  *found = 0;
  const Preference& mine = of(preference);
  const cublasStatus_t status = examine(of(product), of(a), of(b), of(c), of(d));
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  const std::size_t element = size_of(of(d).type);
  if (wanted < 1 || std::min({mine.align_a, mine.align_b, mine.align_c, mine.align_d}) < element)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  // The real one could then accumulate in 16 bits.
  const bool narrow = of(d).type == CUDA_R_16F || of(d).type == CUDA_R_16BF;
  if (narrow && mine.reductions != CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  // Sizes for which the real one may have no epilogue.
  if (of(product).epilogue != CUBLASLT_EPILOGUE_DEFAULT && narrow && of(d).rows % 2 != 0)
    return CUBLAS_STATUS_SUCCESS;
  const Algorithm algorithm = {std::min(mine.workspace, kWorkspace), mine.align_a, mine.align_b,
                               mine.align_c, mine.align_d};
  results[0] = {};
  std::memcpy(&results[0].algo, &algorithm, sizeof(algorithm));
  results[0].workspaceSize = algorithm.workspace;
  *found = 1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t product, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t layout_a, const void* b,
                              cublasLtMatrixLayout_t layout_b, const void* beta, const void* c,
                              cublasLtMatrixLayout_t layout_c, void* d,
                              cublasLtMatrixLayout_t layout_d, const cublasLtMatmulAlgo_t* chosen,
                              void* workspace, std::size_t bytes, cudaStream_t stream) {
  const cublasStatus_t status =
      examine(of(product), of(layout_a), of(layout_b), of(layout_c), of(layout_d));
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  Algorithm algorithm{};
  std::memcpy(&algorithm, chosen, sizeof(algorithm));
  if (bytes < algorithm.workspace || !aligned(workspace, 256) || !aligned(a, algorithm.align_a) ||
      !aligned(b, algorithm.align_b) || !aligned(c, algorithm.align_c) ||
      !aligned(d, algorithm.align_d))
    return CUBLAS_STATUS_INVALID_VALUE;
  const auto run = [&]<class T, class C>(T, C) {
    enqueue(stream,
            Multiply<T, C>{of(product), of(layout_a), of(layout_b), of(layout_c), of(layout_d),
                           *static_cast<const C*>(alpha), *static_cast<const C*>(beta),
                           static_cast<const T*>(a), static_cast<const T*>(b),
                           static_cast<const T*>(c), static_cast<T*>(d)});
  };
  switch (of(layout_d).type) {
    case CUDA_R_64F: run(double(), double()); break;
    case CUDA_R_16F: run(__half(), float()); break;
    case CUDA_R_16BF: run(__nv_bfloat16(), float()); break;
    default: run(float(), float()); break;
  }
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"
