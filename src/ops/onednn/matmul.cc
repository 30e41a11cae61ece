// Matrix products.
#include "core/parallel.h"
#include "core/widen.h"
#include "ops/onednn/packing.h"
#include "ops/onednn/parts.h"
#include "ops/onednn/primitive.h"

namespace tandem::onednn {
namespace {

// A dense matrix of `rows` x `columns` after the batch axes; if `transposed`, it is stored
// transposed.
memory::desc matrices(const MatMul& shape, const Dims& batch, std::int64_t rows,
                      std::int64_t columns, bool transposed) {
  const std::size_t rank = static_cast<std::size_t>(batch.size()) + 2;
  memory::dims sizes(batch.begin(), batch.end());
  sizes.push_back(rows);
  sizes.push_back(columns);
  memory::dims strides(rank);
  strides[rank - 1] = transposed ? rows : 1;
  strides[rank - 2] = transposed ? 1 : columns;
  std::int64_t step = rows * columns;
  for (std::size_t i = rank - 2; i-- > 0;) {
    strides[i] = step;
    step *= sizes[i];
  }
  return {sizes, data_type(shape.dtype), strides};
}

// c = a . b.
std::unique_ptr<Executable> make_product(const memory::desc& a, const memory::desc& b,
                                         const memory::desc& c) {
  const auto desc = describe<dnnl::matmul>(attributes(), a, b, c);
  return std::make_unique<Executable>(
      dnnl::matmul(desc), desc.scratchpad_desc(),
      std::initializer_list<Executable::Argument>{
          {DNNL_ARG_SRC, a}, {DNNL_ARG_WEIGHTS, b}, {DNNL_ARG_DST, c}});
}

bool all_one(const Dims& sizes) {
  return std::all_of(sizes.begin(), sizes.end(), [](std::int64_t size) { return size == 1; });
}

// Whether packing `b` into the layout that oneDNN prefers pays off. Without it, large products take
// up to twice as long for some numbers of columns.
bool packs_b(const MatMul& shape) {
  return shape.dtype == float32 && !shape.transpose_b && shape.m >= 128 &&
         shape.k * shape.n >= std::int64_t{1} << 20 && all_one(shape.batch_a) &&
         all_one(shape.batch_b);
}

memory::desc float_matrix(std::int64_t rows, std::int64_t columns, bool transposed) {
  return {{rows, columns},
          memory::data_type::f32,
          transposed ? memory::dims{1, rows} : memory::dims{columns, 1}};
}

struct WholePlan {
  std::unique_ptr<Executable> product;
  Packing packing;
};

WholePlan make_packed_matmul(const MatMul& shape) {
  const memory::desc a = float_matrix(shape.m, shape.k, shape.transpose_a),
                     b = float_matrix(shape.k, shape.n, false),
                     c = float_matrix(shape.m, shape.n, false),
                     bias = float_matrix(1, shape.n, false),
                     any({shape.k, shape.n}, memory::data_type::f32, memory::format_tag::any);
  const auto desc = shape.bias ? describe<dnnl::matmul>(attributes(), a, any, bias, c)
                               : describe<dnnl::matmul>(attributes(), a, any, c);
  const Executable::Argument src{DNNL_ARG_SRC, a}, weights{DNNL_ARG_WEIGHTS, desc.weights_desc()},
      dst{DNNL_ARG_DST, c}, added{DNNL_ARG_BIAS, bias};
  const auto make = [&](std::initializer_list<Executable::Argument> arguments) {
    return std::make_unique<Executable>(dnnl::matmul(desc), desc.scratchpad_desc(), arguments);
  };
  return {shape.bias ? make({src, weights, dst, added}) : make({src, weights, dst}),
          Packing(b, desc.weights_desc())};
}

std::unique_ptr<Executable> make_matmul(const MatMul& shape) {
  Dims batch = shape.batch_a;
  for (int i = 0; i < batch.size(); ++i) batch[i] = std::max(batch[i], shape.batch_b[i]);
  const memory::desc a = matrices(shape, shape.batch_a, shape.m, shape.k, shape.transpose_a);
  const memory::desc b = matrices(shape, shape.batch_b, shape.k, shape.n, shape.transpose_b);
  const memory::desc c = matrices(shape, batch, shape.m, shape.n, false);
  if (!shape.bias) return make_product(a, b, c);
  memory::dims sizes(static_cast<std::size_t>(batch.size()) + 1, 1);
  sizes.push_back(shape.n);
  memory::dims strides(sizes.size(), shape.n);
  strides.back() = 1;
  const memory::desc bias(sizes, data_type(shape.dtype), strides);
  const auto desc = describe<dnnl::matmul>(attributes(), a, b, bias, c);
  return std::make_unique<Executable>(
      dnnl::matmul(desc), desc.scratchpad_desc(),
      std::initializer_list<Executable::Argument>{
          {DNNL_ARG_SRC, a}, {DNNL_ARG_WEIGHTS, b}, {DNNL_ARG_DST, c}, {DNNL_ARG_BIAS, bias}});
}

// Products a . b with `a` stored transposed, such as the gradient of a dense layer's weights. They
// sum over the rows of a batch, which may be many.

bool is_long_sum(const MatMul& shape) {
  return shape.transpose_a && !shape.bias && shape.k >= 1024 && all_one(shape.batch_a) &&
         all_one(shape.batch_b);
}

// How the work is divided. Small results are divided along the sum, others along their longer side.
// More than four parts have at least 128 rows or columns each, because smaller products are slower.
struct MatMulParts {
  static constexpr std::int64_t kFew = 4;
  enum class Along { kRows, kColumns, kSum } along = Along::kSum;
  int count = 1;

  explicit MatMulParts(const MatMul& shape) {
    const std::int64_t most = shape.m * shape.n * shape.k >> 19;  // smaller parts do not pay off
    if (shape.m * shape.n <= 64 * 1024) {
      count = parts_up_to(std::min({most, std::int64_t{16}, shape.k / 512}));
      return;
    }
    // Rows of a packed product, whose operands all parts share.
    along = shape.m >= shape.n || packs_b(shape) ? Along::kRows : Along::kColumns;
    const std::int64_t length = along == Along::kRows ? shape.m : shape.n;
    count = parts_up_to(
        std::min({most, std::int64_t{16}, std::max(length / 128, std::min(length / 64, kFew))}));
  }
};

std::int64_t size_along(const MatMul& shape, MatMulParts::Along along) {
  switch (along) {
    case MatMulParts::Along::kRows: return shape.m;
    case MatMulParts::Along::kColumns: return shape.n;
    default: return shape.k;
  }
}

struct LongSumPlan {
  MatMulParts parts;
  Packing rows, packing;  // of the left operand, which is stored transposed, and of the right one
  std::vector<TeamExecutable> by_size;  // for the smaller and the larger size of a part
  std::size_t scratchpad_bytes = 0;
};

// The layout of `b` that oneDNN prefers.
memory::desc packed_for(const memory::desc& a, const memory::desc& b, const memory::desc& c) {
  const ThreadBudget alone(1);  // as the products of parts
  const memory::desc any(b.dims(), b.data_type(), memory::format_tag::any);
  return describe<dnnl::matmul>(attributes(), a, any, c).weights_desc();
}

LongSumPlan make_long_sum(const MatMul& shape) {
  using Along = MatMulParts::Along;
  LongSumPlan plan{.parts = MatMulParts(shape)};
  const Along along = plan.parts.along;
  const std::int64_t whole = size_along(shape, along);
  const std::int64_t smaller = whole / plan.parts.count;
  const bool even = whole % plan.parts.count == 0;
  const memory::data_type type = data_type(shape.dtype);
  const bool packs = along == Along::kRows && packs_b(shape);
  if (packs)
    plan.rows =
        Packing(float_matrix(shape.m, shape.k, true), float_matrix(shape.m, shape.k, false));
  memory::desc packed;
  for (const std::int64_t size : {smaller, smaller + 1}) {
    if (size > smaller && even) break;
    const std::int64_t m = along == Along::kRows ? size : shape.m;
    const std::int64_t n = along == Along::kColumns ? size : shape.n;
    const std::int64_t k = along == Along::kSum ? size : shape.k;
    memory::desc a({m, k}, type, memory::dims{1, shape.m});
    memory::desc b({k, n}, type,
                   shape.transpose_b ? memory::dims{1, shape.k} : memory::dims{shape.n, 1});
    const memory::desc c({m, n}, along == Along::kSum ? memory::data_type::f32 : type,
                         memory::dims{shape.n, 1});
    if (packs) {
      a = float_matrix(m, k, false);
      if (size == smaller) {
        packed = packed_for(a, b, c);
        plan.packing = Packing(b, packed);
      }
      b = packed;
    }
    plan.by_size.emplace_back(std::min(intra_op_threads(), plan.parts.count),
                              [&] { return make_product(a, b, c); });
    plan.scratchpad_bytes = std::max(plan.scratchpad_bytes, plan.by_size.back().scratchpad_bytes());
  }
  return plan;
}

// Parts along the sum write to separate float32 memory. If the result is float32, the first part
// writes to it.
void run_long_sum(KernelContext& context, const LongSumPlan& plan, const MatMul& shape,
                  const std::byte* a, const std::byte* b, void* c) {
  using Along = MatMulParts::Along;
  const auto [along, count] = plan.parts;
  const auto element = static_cast<std::int64_t>(size_of(shape.dtype));
  const int threads = plan.by_size.front().threads();
  const std::size_t thread_bytes = aligned(plan.scratchpad_bytes);
  auto* work =
      static_cast<std::byte*>(context.scratch(static_cast<std::size_t>(threads) * thread_bytes));
  const std::int64_t result = shape.m * shape.n;
  const auto floats = [&](std::int64_t size) {
    return static_cast<float*>(context.scratch(static_cast<std::size_t>(size) * sizeof(float)));
  };
  float *sum = nullptr, *others = nullptr;
  if (along == Along::kSum) {
    sum = shape.dtype == float32 ? static_cast<float*>(c) : floats(result);
    others = floats((count - 1) * result);
  }
  const std::int64_t whole = size_along(shape, along);
  const bool by_rows = plan.rows.needed();
  a = static_cast<const std::byte*>(plan.rows.pack(context, a));
  b = static_cast<const std::byte*>(plan.packing.pack(context, static_cast<const void*>(b)));
  run_parts(threads, count, [&](int thread, int part) {
    const PartRange range = part_of(whole, count, part);
    const std::int64_t row = along == Along::kRows ? range.begin : 0;
    const std::int64_t column = along == Along::kColumns ? range.begin : 0;
    const std::int64_t term = along == Along::kSum ? range.begin : 0;
    void* to = static_cast<std::byte*>(c) + (row * shape.n + column) * element;
    if (along == Along::kSum) to = part == 0 ? sum : others + (part - 1) * result;
    return plan.by_size[range.size == whole / count ? 0 : 1].run(
        thread, work + static_cast<std::size_t>(thread) * thread_bytes,
        {a + (by_rows ? row * shape.k : term * shape.m + row) * element,
         b + (shape.transpose_b ? column * shape.k + term : term * shape.n + column) * element,
         to});
  });
  if (along != Along::kSum) return;
  add_parts(sum, others, count - 1, result);
  if (shape.dtype != float32)
    parallel_for(result, 16384, [&](std::int64_t begin, std::int64_t end) {
      narrow(sum + begin, static_cast<BFloat16*>(c) + begin, end - begin);
    });
}

// Constant weights are packed once, by a 1x1 convolution over the rows. It is faster than oneDNN's
// matrix product for few rows (1.4 to 3.5 times for up to 8), on processors without AVX-512 also
// for more, and its bits do not depend on the team there.
bool is_convolution(const KernelContext& context, const MatMul& shape, const TensorView& b) {
  return b.version == TensorView::kConstant && context.kept && shape.dtype == float32 &&
         !shape.transpose_a && !shape.transpose_b && all_one(shape.batch_a) &&
         all_one(shape.batch_b);
}

ConvShape as_convolution(const MatMul& shape) {
  return {.dtype = shape.dtype,
          .n = 1,
          .h = shape.m,
          .w = 1,
          .in = shape.k,
          .kh = 1,
          .kw = 1,
          .out = shape.n,
          .oh = shape.m,
          .ow = 1};
}

}  // namespace

void matmul(KernelContext& context, const MatMul& shape, const void* a, const TensorView& b,
            const void* bias, void* c) {
  if (is_convolution(context, shape, b))
    return conv_forward(context, as_convolution(shape), a, b, bias, c);
  const Use use;
  const bool long_sum = is_long_sum(shape);
  const auto key = [&] {
    PrimitiveKey key(PrimitiveKind::kMatMul, shape.dtype);
    key.add(shape.m, shape.n, shape.k, shape.transpose_a, shape.transpose_b, shape.bias);
    if (long_sum) return key;
    key.add(shape.batch_a);
    key.add(shape.batch_b);
    return key;
  };
  if (long_sum) {
    const LongSumPlan& plan =
        plan_for<LongSumPlan>(context, key, [&] { return make_long_sum(shape); });
    return run_long_sum(context, plan, shape, static_cast<const std::byte*>(a),
                        static_cast<const std::byte*>(b.data), c);
  }
  WholePlan& whole = plan_for<WholePlan>(context, key, [&] {
    return packs_b(shape) ? make_packed_matmul(shape) : WholePlan{make_matmul(shape), {}};
  });
  const void* weights = whole.packing.pack(context, b);
  if (shape.bias)
    whole.product->run(context, {a, weights, c, bias});
  else
    whole.product->run(context, {a, weights, c});
}

PackedProduct::PackedProduct(KernelContext& context, std::int64_t m, std::int64_t n, std::int64_t k,
                             const TensorView& b) {
  const auto key = [&] {
    PrimitiveKey key(PrimitiveKind::kPackedMatMul, float32);
    key.add(m, n, k);
    return key;
  };
  WholePlan& plan = plan_for<WholePlan>(
      context, key, [&] { return make_packed_matmul({.m = m, .n = n, .k = k}); });
  product_ = plan.product.get();
  scratchpad_ = context.scratch(product_->scratchpad_bytes());
  b_ = plan.packing.pack(context, b);
}

void PackedProduct::operator()(const float* a, float* c) const {
  check(product_->run_in(scratchpad_, {a, b_, c}));
}

void gemm(const Gemm& shape, const float* a, std::int64_t lda, const float* b, std::int64_t ldb,
          float* c, std::int64_t ldc) {
  const dnnl_status_t status =
      dnnl_sgemm(shape.transpose_a ? 'T' : 'N', shape.transpose_b ? 'T' : 'N', shape.m, shape.n,
                 shape.k, 1.0f, a, lda, b, ldb, shape.accumulate ? 1.0f : 0.0f, c, ldc);
  if (status != dnnl_success) [[unlikely]]
    fail<InternalError>("[oneDNN] a matrix product failed with status {}",
                        static_cast<int>(status));
}

}  // namespace tandem::onednn
