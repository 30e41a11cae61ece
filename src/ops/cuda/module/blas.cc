#include "ops/cuda/blas.h"

#include <cublasLt.h>

#include <algorithm>
#include <bit>
#include <compare>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "core/status.h"
#include "ops/cuda/launch.h"

namespace tandem::cuda {
namespace {

constexpr std::uint64_t kMostWorkspace = std::uint64_t{32} << 20;

void check_blas(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) [[likely]]
    return;
  // cuBLAS's own memory, beside the arenas': other processes may have the rest of the GPU's.
  if (status == CUBLAS_STATUS_ALLOC_FAILED)
    fail<ResourceExhaustedError>(
        "[cuda] {}: {}: the GPU has no memory left for cuBLAS; leave it some with "
        "config::set_memory_growth() or a memory limit",
        call, cublasLtGetStatusName(status));
  fail<InternalError>("[cuda] {}: {}", call, cublasLtGetStatusName(status));
}

cudaDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat64: return CUDA_R_64F;
    case DType::kFloat16: return CUDA_R_16F;
    case DType::kBFloat16: return CUDA_R_16BF;
    default: return CUDA_R_32F;
  }
}

cublasComputeType_t compute_type_of(const BlasProduct& product) {
  if (product.dtype == float64) return CUBLAS_COMPUTE_64F;
  return product.dtype == float32 && product.tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32
                                                  : CUBLAS_COMPUTE_32F;
}

// All that the choice of an algorithm depends on.
struct Problem {
  DType dtype;
  std::int64_t m, n, k, batch, stride_a, stride_b;
  bool transpose_a, transpose_b, bias, tf32;
  unsigned align_a, align_b, align_c, align_bias;  // in bytes
  auto operator<=>(const Problem&) const = default;
};

struct ChosenAlgorithm {
  cublasLtMatmulAlgo_t algorithm;
  std::size_t workspace;
};

unsigned alignment_of(const void* memory) {
  const auto address = reinterpret_cast<std::uintptr_t>(memory);
  return 1u << std::min(8, std::countr_zero(address));
}

struct Destroy {
  void operator()(cublasLtMatmulDesc_t each) const { cublasLtMatmulDescDestroy(each); }
  void operator()(cublasLtMatrixLayout_t each) const { cublasLtMatrixLayoutDestroy(each); }
  void operator()(cublasLtMatmulPreference_t each) const { cublasLtMatmulPreferenceDestroy(each); }
};
template <class Handle>
using Owned = std::unique_ptr<std::remove_pointer_t<Handle>, Destroy>;

Owned<cublasLtMatrixLayout_t> layout(const BlasProduct& product, std::int64_t rows,
                                     std::int64_t columns, std::int64_t stride) {
  cublasLtMatrixLayout_t made = nullptr;
  check_blas(
      cublasLtMatrixLayoutCreate(&made, type_of(product.dtype), static_cast<std::uint64_t>(rows),
                                 static_cast<std::uint64_t>(columns), rows),
      "cublasLtMatrixLayoutCreate");
  Owned<cublasLtMatrixLayout_t> owned(made);
  if (product.batch == 1) return owned;
  const auto batch = static_cast<std::int32_t>(product.batch);
  check_blas(cublasLtMatrixLayoutSetAttribute(made, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch,
                                              sizeof(batch)),
             "cublasLtMatrixLayoutSetAttribute");
  check_blas(cublasLtMatrixLayoutSetAttribute(made, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                              &stride, sizeof(stride)),
             "cublasLtMatrixLayoutSetAttribute");
  return owned;
}

// cuBLAS's matrices are column-major, so it sees c as its transpose, which is the product of the
// transposes of b and a, in this order.
struct Description {
  Owned<cublasLtMatmulDesc_t> product;
  Owned<cublasLtMatrixLayout_t> b, a, c;

  explicit Description(const BlasProduct& of)
      : b(of.transpose_b ? layout(of, of.k, of.n, of.stride_b)
                         : layout(of, of.n, of.k, of.stride_b)),
        a(of.transpose_a ? layout(of, of.m, of.k, of.stride_a)
                         : layout(of, of.k, of.m, of.stride_a)),
        c(layout(of, of.n, of.m, of.m * of.n)) {
    cublasLtMatmulDesc_t made = nullptr;
    check_blas(cublasLtMatmulDescCreate(&made, compute_type_of(of),
                                        of.dtype == float64 ? CUDA_R_64F : CUDA_R_32F),
               "cublasLtMatmulDescCreate");
    product.reset(made);
    set(CUBLASLT_MATMUL_DESC_TRANSA, of.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_TRANSB, of.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
    if (of.bias) {
      set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
      set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, of.bias);
    }
  }

  template <class V>
  void set(cublasLtMatmulDescAttributes_t which, V value) {
    check_blas(cublasLtMatmulDescSetAttribute(product.get(), which, &value, sizeof(value)),
               "cublasLtMatmulDescSetAttribute");
  }
};

// cuBLASLt on one GPU, with a cache of chosen algorithms. Lives as long as the process.
class Blas {
 public:
  // REQUIRES: the GPU is the thread's current device.
  static Blas& on(int ordinal) {
    static std::mutex mutex;
    static auto* const all = new std::map<int, std::unique_ptr<Blas>>;
    const std::lock_guard lock(mutex);
    std::unique_ptr<Blas>& mine = (*all)[ordinal];
    if (!mine) mine.reset(new Blas);
    return *mine;
  }

  cublasLtHandle_t handle() const { return handle_; }

  // Returns nullopt if cuBLAS has no such product with a bias; it may have one without.
  std::optional<ChosenAlgorithm> choose(const Problem& problem, const Description& description) {
    const std::lock_guard lock(mutex_);
    const auto found = choices_.find(problem);
    if (found != choices_.end()) return found->second;
    return choices_.emplace(problem, ask(problem, description)).first->second;
  }

 private:
  Blas() { check_blas(cublasLtCreate(&handle_), "cublasLtCreate"); }

  std::optional<ChosenAlgorithm> ask(const Problem& problem, const Description& description) const {
    cublasLtMatmulPreference_t made = nullptr;
    check_blas(cublasLtMatmulPreferenceCreate(&made), "cublasLtMatmulPreferenceCreate");
    const Owned<cublasLtMatmulPreference_t> preference(made);
    const auto set = [&](cublasLtMatmulPreferenceAttributes_t which, auto value) {
      check_blas(cublasLtMatmulPreferenceSetAttribute(made, which, &value, sizeof(value)),
                 "cublasLtMatmulPreferenceSetAttribute");
    };
    set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kMostWorkspace);
    // Partial sums have the compute type, never 16 bits.
    set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
        std::uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, std::uint32_t{problem.align_b});
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, std::uint32_t{problem.align_a});
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, std::uint32_t{problem.align_c});
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, std::uint32_t{problem.align_c});
    cublasLtMatmulHeuristicResult_t result{};
    int found = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
        handle_, description.product.get(), description.b.get(), description.a.get(),
        description.c.get(), description.c.get(), made, 1, &result, &found);
    if (status == CUBLAS_STATUS_SUCCESS && found > 0)
      return ChosenAlgorithm{result.algo, result.workspaceSize};
    if (status == CUBLAS_STATUS_ALLOC_FAILED) check_blas(status, "cublasLtMatmulAlgoGetHeuristic");
    if (!problem.bias)
      fail<InternalError>("[cuda] cuBLAS has no product of {} x {} by {} x {} of {}: {}", problem.m,
                          problem.k, problem.k, problem.n, name_of(problem.dtype),
                          cublasLtGetStatusName(status));
    return std::nullopt;
  }

  cublasLtHandle_t handle_ = nullptr;
  std::mutex mutex_;
  std::map<Problem, std::optional<ChosenAlgorithm>> choices_;
};

}  // namespace

bool blas_product(KernelContext& context, const BlasProduct& product, const void* a, const void* b,
                  void* c) {
  const Description description(product);
  const Problem problem = {.dtype = product.dtype,
                           .m = product.m,
                           .n = product.n,
                           .k = product.k,
                           .batch = product.batch,
                           .stride_a = product.stride_a,
                           .stride_b = product.stride_b,
                           .transpose_a = product.transpose_a,
                           .transpose_b = product.transpose_b,
                           .bias = product.bias != nullptr,
                           .tf32 = product.tf32,
                           .align_a = alignment_of(a),
                           .align_b = alignment_of(b),
                           .align_c = alignment_of(c),
                           .align_bias = alignment_of(product.bias)};
  Blas& blas = Blas::on(device_of(context).ordinal());
  const std::optional<ChosenAlgorithm> choice = blas.choose(problem, description);
  if (!choice) return false;
  void* workspace = context.scratch(choice->workspace);
  const float one = 1.0f, zero = 0.0f;
  const double wide_one = 1.0, wide_zero = 0.0;
  const bool wide = product.dtype == float64;
  check_blas(
      cublasLtMatmul(blas.handle(), description.product.get(),
                     wide ? static_cast<const void*>(&wide_one) : &one, b, description.b.get(), a,
                     description.a.get(), wide ? static_cast<const void*>(&wide_zero) : &zero, c,
                     description.c.get(), c, description.c.get(), &choice->algorithm, workspace,
                     choice->workspace, stream_of(context)),
      "cublasLtMatmul");
  return true;
}

}  // namespace tandem::cuda
