#include "ops/math/prod_grad.h"

#include <algorithm>

#include "core/multiversion.h"
#include "core/parallel.h"
#include "ops/math/elementwise.h"
#include "ops/math/float_chunks.h"

namespace tandem {
namespace {

// The derivative by an element is the product of the others: of those before it and of those after
// it. There are no divisions, so zeros need no special case. The elements of a product are divided
// into blocks, whose products are computed first.
constexpr std::int64_t kBlock = 4096;    // the elements of a block of contiguous elements
constexpr std::int64_t kBlockRows = 64;  // the rows of a block of products per column,
constexpr std::int64_t kColumns = 128;   // and its columns
constexpr std::int64_t kLanes = 64;

std::int64_t blocks_of(std::int64_t count, std::int64_t block) {
  return (count + block - 1) / block;
}

void infer_prod_grad(InferContext& c) {
  check_dtype(c.op().name, kFloating, c.dtype(0));
  const Shape &x = c.shape(0), &dy = c.shape(1);
  if (c.dtype(1) != c.dtype(0))
    fail<InvalidArgumentError>("[{}] expected tensors of one dtype, got {} and {}", c.op().name,
                               name_of(c.dtype(0)), name_of(c.dtype(1)));
  if (x.rank() != 3 || dy.rank() != 3 || dy[0] != x[0] || dy[1] != 1 || dy[2] != x[2])
    fail<InvalidArgumentError>(
        "[{}] expected data [a, b, c] and a gradient [a, 1, c], got shapes {} and {}", c.op().name,
        x.to_string(), dy.to_string());
  c.add_output(c.dtype(0), x);
}

// Replaces each number by the product of the others, times `factor`. `before` has space for as
// many.
template <class C>
void replace_by_others(C* numbers, std::int64_t count, C factor, C* before) {
  C product = C(1);
  for (std::int64_t i = 0; i < count; ++i) {
    before[i] = product;
    product *= numbers[i];
  }
  for (std::int64_t i = count - 1; i >= 0; --i) {
    const C own = numbers[i];
    numbers[i] = before[i] * factor;
    factor *= own;
  }
}

// Scans `rows` rows of `width` numbers, then `rest` numbers of one more row. out = the product of
// the numbers before, in the same column; `products` = those of whole columns.
template <class C>
TANDEM_INLINED void scan_down(const C* x, C* __restrict__ out, std::int64_t rows,
                              std::int64_t width, std::int64_t stride, std::int64_t rest,
                              C* __restrict__ products) {
  std::fill_n(products, width, C(1));
  for (std::int64_t row = 0; row <= rows; ++row, x += stride, out += stride)
    for (std::int64_t j = 0; j < (row < rows ? width : rest); ++j) {
      out[j] = products[j];
      products[j] *= x[j];
    }
}
// Multiplies out by the products of the numbers after, and by `products`.
template <class C>
TANDEM_INLINED void scan_up(const C* x, C* __restrict__ out, std::int64_t rows, std::int64_t width,
                            std::int64_t stride, std::int64_t rest, C* __restrict__ products) {
  for (std::int64_t row = rows; row >= 0; --row)
    for (std::int64_t j = 0; j < (row < rows ? width : rest); ++j) {
      out[row * stride + j] *= products[j];
      products[j] *= x[row * stride + j];
    }
}

// The product of contiguous elements, in lanes.
template <class C>
TANDEM_MULTIVERSION C product_of(const C* x, std::int64_t count) {
  alignas(64) C lanes[kLanes];
  std::fill_n(lanes, kLanes, C(1));
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    for (int j = 0; j < kLanes; ++j) lanes[j] *= x[i + j];
  for (int j = 0; i + j < count; ++j) lanes[j] *= x[i + j];
  for (int width = kLanes / 2; width > 0; width /= 2)
    for (int j = 0; j < width; ++j) lanes[j] *= lanes[j + width];
  return lanes[0];
}

// out[i] = factor * the product of all elements but x[i], for at most kBlock contiguous elements.
template <class C>
TANDEM_MULTIVERSION void grad_of_block(const C* x, C* out, std::int64_t count, C factor) {
  alignas(64) C products[kLanes], before[kLanes];
  if (count < kLanes) {
    std::copy_n(x, count, out);
    return replace_by_others(out, count, factor, before);
  }
  const std::int64_t rows = count / kLanes, rest = count % kLanes;
  scan_down(x, out, rows, kLanes, kLanes, rest, products);
  replace_by_others(products, kLanes, factor, before);
  scan_up(x, out, rows, kLanes, kLanes, rest, products);
}

template <class C>
TANDEM_MULTIVERSION void column_products(const C* x, std::int64_t rows, std::int64_t columns,
                                         std::int64_t stride, C* products) {
  std::fill_n(products, columns, C(1));
  for (std::int64_t row = 0; row < rows; ++row, x += stride)
    for (std::int64_t j = 0; j < columns; ++j) products[j] *= x[j];
}

// out = factors[j] * the product of the other elements of column j.
template <class C>
TANDEM_MULTIVERSION void grad_of_columns(const C* x, C* out, std::int64_t rows,
                                         std::int64_t columns, std::int64_t stride,
                                         const C* factors, C* products) {
  scan_down(x, out, rows, columns, stride, 0, products);
  std::copy_n(factors, columns, products);
  scan_up(x, out, rows, columns, stride, 0, products);
}

// Elements in their compute type: their own memory, or a copy of 16-bit ones without gaps.
template <class T>
class Widened {
 public:
  using C = Compute<T>;
  static constexpr bool kCopies = is_16_bit_floating<T>;

  // `rows` rows of `columns` elements, `stride` apart.
  const C* read(const T* x, std::int64_t rows, std::int64_t columns, std::int64_t stride) {
    if constexpr (!kCopies)
      return x;
    else {
      for (std::int64_t row = 0; row < rows; ++row)
        widen(x + row * stride, in_ + row * columns, columns);
      return in_;
    }
  }
  C* out(T* to) {
    if constexpr (kCopies)
      return out_;
    else
      return to;
  }
  void write(T* to, std::int64_t rows, std::int64_t columns, std::int64_t stride) const {
    if constexpr (kCopies)
      for (std::int64_t row = 0; row < rows; ++row)
        narrow(out_ + row * columns, to + row * stride, columns);
  }
  static std::int64_t stride_of(std::int64_t columns, std::int64_t stride) {
    return kCopies ? columns : stride;
  }

 private:
  static constexpr std::int64_t kMost = kCopies ? kBlockRows * kColumns : 1;
  static_assert(kBlock <= kBlockRows * kColumns);
  alignas(64) C in_[kMost];
  alignas(64) C out_[kMost];
};

template <class C>
C* take(KernelContext& c, std::int64_t count) {
  return static_cast<C*>(c.scratch(static_cast<std::size_t>(count) * sizeof(C)));
}

// Products of contiguous elements: the gradient of `products` times `length` of them. `dy` has a
// number per product.
template <class T>
void grad_of_runs(KernelContext& c, std::int64_t products, std::int64_t length,
                  const Compute<T>* dy) {
  using C = Compute<T>;
  const T* x = c.inputs[0].as<const T>();
  T* dx = c.outputs[0].as<T>();
  const std::int64_t blocks = blocks_of(length, kBlock);
  const std::int64_t grain =
      std::max<std::int64_t>(1, kElementwiseGrain / std::min(length, kBlock));
  const auto for_blocks = [&](const auto& body) {
    parallel_for(products * blocks, grain, [&](std::int64_t task, std::int64_t end) {
      Widened<T> wide;
      for (; task < end; ++task) {
        const std::int64_t begin = task % blocks * kBlock;
        body(wide, task, task / blocks * length + begin, std::min(kBlock, length - begin));
      }
    });
  };
  const C* factors = dy;
  if (blocks > 1) {
    C *others = take<C>(c, products * blocks), *before = take<C>(c, blocks);
    for_blocks([&](Widened<T>& wide, std::int64_t task, std::int64_t at, std::int64_t count) {
      others[task] = product_of(wide.read(x + at, 1, count, 0), count);
    });
    for (std::int64_t i = 0; i < products; ++i)
      replace_by_others(others + i * blocks, blocks, dy[i], before);
    factors = others;
  }
  for_blocks([&](Widened<T>& wide, std::int64_t task, std::int64_t at, std::int64_t count) {
    grad_of_block(wide.read(x + at, 1, count, 0), wide.out(dx + at), count, factors[task]);
    wide.write(dx + at, 1, count, 0);
  });
}

// Products over axis 1 of [a, b, c].
template <class T>
void grad_of_columns(KernelContext& c, const Shape& shape, const Compute<T>* dy) {
  using C = Compute<T>;
  const T* x = c.inputs[0].as<const T>();
  T* dx = c.outputs[0].as<T>();
  const std::int64_t rows = shape[1], inner = shape[2];
  const std::int64_t blocks = blocks_of(rows, kBlockRows), chunks = blocks_of(inner, kColumns);
  // body(wide, first element, rows, columns, position in an array [a, blocks, c])
  const auto for_blocks = [&](const auto& body) {
    parallel_for(shape[0] * blocks * chunks, 2, [&](std::int64_t task, std::int64_t end) {
      Widened<T> wide;
      for (; task < end; ++task) {
        const std::int64_t column = task % chunks * kColumns, block = task / chunks;
        const std::int64_t row = block % blocks * kBlockRows;
        body(wide, (block / blocks * rows + row) * inner + column, std::min(kBlockRows, rows - row),
             std::min(kColumns, inner - column), block * inner + column);
      }
    });
  };
  const C* factors = dy;
  if (blocks > 1) {
    C *totals = take<C>(c, shape[0] * blocks * inner),
      *others = take<C>(c, shape[0] * blocks * inner), *products = take<C>(c, inner);
    for_blocks([&](Widened<T>& wide, std::int64_t at, std::int64_t height, std::int64_t columns,
                   std::int64_t position) {
      column_products(wide.read(x + at, height, columns, inner), height, columns,
                      wide.stride_of(columns, inner), totals + position);
    });
    for (std::int64_t i = 0; i < shape[0]; ++i)
      grad_of_columns(totals + i * blocks * inner, others + i * blocks * inner, blocks, inner,
                      inner, dy + i * inner, products);
    factors = others;
  }
  for_blocks([&](Widened<T>& wide, std::int64_t at, std::int64_t height, std::int64_t columns,
                 std::int64_t position) {
    alignas(64) C products[kColumns];
    grad_of_columns(wide.read(x + at, height, columns, inner), wide.out(dx + at), height, columns,
                    wide.stride_of(columns, inner), factors + position, products);
    wide.write(dx + at, height, columns, inner);
  });
}

void prod_grad_kernel(KernelContext& c) {
  const Shape& shape = c.inputs[0].shape;
  if (c.inputs[0].size() == 0) return;
  switch_floating(c.inputs[0].dtype, [&]<class T>(TypeTag<T>) {
    Compute<T>* dy = take<Compute<T>>(c, c.inputs[1].size());
    load_floats(c.inputs[1].as<const T>(), dy, c.inputs[1].size());
    if (shape[2] == 1)
      grad_of_runs<T>(c, shape[0], shape[1], dy);
    else
      grad_of_columns<T>(c, shape, dy);
  });
}

}  // namespace

const OpDef kProdGrad = {
    .name = "ProdGrad", .infer = infer_prod_grad, .cpu_kernel = prod_grad_kernel};

}  // namespace tandem
