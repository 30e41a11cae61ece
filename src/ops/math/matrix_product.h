// The kernel of all matrix products.
#pragma once

#include <algorithm>
#include <utility>

#include "op/op.h"
#include "tandem/nn.h"

namespace tandem {

// The leading axes of two operands, padded to the same rank. Adjacent axes that broadcast alike are
// merged; most products have at most one axis left.
struct BatchAxes {
  Dims a, b;
  std::int64_t count_a = 1, count_b = 1, count = 1;

  BatchAxes(const Shape& shape_a, const Shape& shape_b) {
    const int rank_a = shape_a.rank() - 2, rank_b = shape_b.rank() - 2;
    const int rank = std::max(rank_a, rank_b);
    enum Pattern { kNone, kBoth, kOnlyA, kOnlyB } last = kNone;
    for (int i = 0; i < rank; ++i) {
      const std::int64_t size_a = i < rank - rank_a ? 1 : shape_a.word(i - (rank - rank_a));
      const std::int64_t size_b = i < rank - rank_b ? 1 : shape_b.word(i - (rank - rank_b));
      if (size_a == 1 && size_b == 1) continue;
      const Pattern pattern = size_a == size_b ? kBoth : size_b == 1 ? kOnlyA : kOnlyB;
      if (pattern == last) {
        a[a.size() - 1] *= size_a;
        b[b.size() - 1] *= size_b;
      } else {
        a.push_back(size_a);
        b.push_back(size_b);
        last = pattern;
      }
      count_a *= size_a;
      count_b *= size_b;
      count *= std::max(size_a, size_b);
    }
  }

  // The indices of the two operands' matrices whose product is the result's matrix `index`.
  std::pair<std::int64_t, std::int64_t> operands(std::int64_t index) const {
    std::int64_t at_a = 0, at_b = 0, step_a = 1, step_b = 1;
    for (int i = a.size(); i-- > 0;) {
      const std::int64_t size = std::max(a[i], b[i]), position = index % size;
      index /= size;
      if (a[i] != 1) at_a += position * step_a;
      if (b[i] != 1) at_b += position * step_b;
      step_a *= a[i];
      step_b *= b[i];
    }
    return {at_a, at_b};
  }
};

struct MatrixProduct {
  bool transpose_a = false;
  bool transpose_b = false;
  nn::Activation activation = nn::Activation::kLinear;  // must be is_fused()
};

// The sizes of a product c = a . b. If the whole batch shares one b, it is merged into the rows.
struct ProductSizes {
  std::int64_t m, n, k;
  BatchAxes batch;

  ProductSizes(const MatrixProduct& product, const Shape& a, const Shape& b, const Shape& c)
      : m(c.word(-2)), n(c.word(-1)), k(a.word(product.transpose_a ? -2 : -1)), batch(a, b) {
    if (batch.count_b != 1 || product.transpose_a) return;
    m *= batch.count;
    batch = BatchAxes(Shape{1, 1}, Shape{1, 1});
  }
};

// c = activation(a . b + bias) over the last two axes; leading axes broadcast. `bias` [n] may be
// null. REQUIRES: matching shapes and one floating dtype.
void matrix_product(KernelContext& context, const MatrixProduct& product, const TensorView& a,
                    const TensorView& b, const TensorView* bias, const TensorView& c);

}  // namespace tandem
