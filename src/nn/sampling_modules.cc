// Sampling at positions, and bags of rows of a table, as compositions of gathers and sums.
#include "tandem/sampling_modules.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "core/dim.h"
#include "core/status.h"
#include "nn/cubic_weights.h"
#include "nn/targets.h"
#include "tandem/array.h"
#include "tandem/autodiff.h"
#include "tandem/creation.h"
#include "tandem/elementary.h"
#include "tandem/math.h"
#include "tandem/random.h"
#include "tandem/scatter.h"

namespace tandem::nn {
namespace {

enum class Beyond { kZeros, kBorder, kReflection };

struct Sampling {
  Beyond beyond;
  bool align_corners;
};

// Positions in elements, along an axis of `size`, of positions from -1 to 1.
Tensor in_elements(const Tensor& at, const Dim& size, const Sampling& how) {
  return how.align_corners ? (at + 1.0) * 0.5 * (size - 1) : ((at + 1.0) * size - 1.0) * 0.5;
}

// Reflected at the centers or the edges of the first and the last element.
Tensor reflected(const Tensor& at, const Dim& size, const Sampling& how) {
  const Dim span = how.align_corners ? max(size - 1, 1) : size;
  const double low = how.align_corners ? 0.0 : -0.5;
  const Tensor distance = abs(at - low);
  const Tensor turns = floor(distance / span);
  const Tensor rest = distance - turns * span;
  return where(equal(floor_mod(turns, 2.0), 0.0), rest, span - rest) + low;
}

// Positions that are inside unless there are zeros beyond the input.
Tensor brought_inside(Tensor at, const Dim& size, const Sampling& how) {
  if (how.beyond == Beyond::kZeros) return at;
  if (how.beyond == Beyond::kReflection) at = reflected(at, size, how);
  return minimum(maximum(at, 0.0), size - 1);
}

// An element along an axis that a sample takes part of, for all samples.
struct SampledTap {
  Tensor position;  // whole numbers of the dtype of the grid
  Tensor weight;    // undefined: 1
};
using SampledTaps = std::vector<SampledTap>;

SampledTaps sampled_taps(const std::string& mode, const Tensor& grid, const Dim& size,
                         const Sampling& how) {
  const Tensor given = in_elements(grid, size, how);
  if (mode == "bicubic") {
    const Tensor first = floor(given);
    const std::vector<Tensor> weights = cubic_weights(given - first);
    SampledTaps taps;
    for (int i = 0; i < 4; ++i)
      taps.push_back({brought_inside(first + static_cast<double>(i - 1), size, how),
                      weights[static_cast<std::size_t>(i)]});
    return taps;
  }
  const Tensor at = brought_inside(given, size, how);
  if (mode == "nearest") return {{round(at), {}}};
  const Tensor first = floor(at), part = at - first;
  return {{first, 1.0 - part}, {first + 1.0, part}};
}

// Samples `rows`, the elements of the batch's inputs with the channels last, by all combinations of
// taps along the axes, of which the first `axis` have been chosen: `row` is their position,
// `inside` whether it is in the input, `weight` their product.
class Sampler {
 public:
  Sampler(const Tensor& x, const std::vector<SampledTaps>& taps) : taps_(taps) {
    Dims channels_last{0};
    for (int axis = 2; axis < x.rank(); ++axis) channels_last.push_back(axis);
    channels_last.push_back(1);
    rows_ = reshape(transpose(x, channels_last), {-1, x.dim(1)});
    for (int axis = 2; axis < x.rank(); ++axis) sizes_.push_back(x.dim(axis));
  }

  Tensor sum(std::size_t axis, const Tensor& row, const Tensor& inside,
             const Tensor& weight) const {
    if (axis == taps_.size()) {
      const Tensor elements =
          where(expand_dims(inside, -1), gather(rows_, where(inside, row, zeros_like(row))), 0.0);
      return weight.defined() ? elements * expand_dims(weight, -1) : elements;
    }
    Tensor total;
    for (const SampledTap& tap : taps_[axis]) {
      const Dim size = sizes_[axis];
      const Tensor there = logical_and(greater_equal(tap.position, 0.0), less(tap.position, size));
      const Tensor at = cast(where(there, tap.position, zeros_like(tap.position)), int64);
      const Tensor part = sum(axis + 1, row * size + at, logical_and(inside, there),
                              weight.defined() && tap.weight.defined() ? weight * tap.weight
                              : weight.defined()                       ? weight
                                                                       : tap.weight);
      total = total.defined() ? total + part : part;
    }
    return total;
  }

 private:
  const std::vector<SampledTaps>& taps_;
  std::vector<Dim> sizes_;
  Tensor rows_;
};

void expect_grid(const Tensor& x, const Tensor& grid, const GridSampleOptions& o) {
  const int axes = x.rank() - 2;
  if ((axes != 2 && axes != 3) || grid.rank() != axes + 2 ||
      !dim::may_equal(grid.size_word(-1), axes) ||
      !dim::may_equal(grid.size_word(0), x.size_word(0)))
    fail<ShapeError>(
        "[grid_sample] expected images (batch, channels, height, width) and a grid (batch, rows, "
        "columns, 2), or volumes and a grid (batch, slices, rows, columns, 3), got shapes {} and "
        "{}",
        x.shape().to_string(), grid.shape().to_string());
  if (!is_floating(x.dtype()) || grid.dtype() != x.dtype())
    fail<DTypeError>("[grid_sample] expected one floating dtype of input and grid, got {} and {}",
                     name_of(x.dtype()), name_of(grid.dtype()));
  if (o.mode != "bilinear" && o.mode != "nearest" && o.mode != "bicubic")
    fail<InvalidArgumentError>(
        "[grid_sample] expected mode \"bilinear\", \"nearest\" or \"bicubic\", got \"{}\"", o.mode);
}

Beyond beyond_of(const std::string& name) {
  if (name == "zeros") return Beyond::kZeros;
  if (name == "border") return Beyond::kBorder;
  if (name == "reflection") return Beyond::kReflection;
  fail<InvalidArgumentError>(
      "[grid_sample] expected padding_mode \"zeros\", \"border\" or \"reflection\", got \"{}\"",
      name);
}

// --- bags ---

// Each index with its bag: vectors of the same size.
struct Bags {
  Tensor indices, bags;
  Dim count;
};

Bags bags_of(const Tensor& input, const Tensor& offsets, bool include_last) {
  if (input.rank() == 2) {
    if (offsets.defined())
      throw InvalidArgumentError("[embedding_bag] expected no offsets of a matrix of indices");
    const Tensor rows = expand_dims(range(input.dim(0), {.dtype = int64}), 1);
    return {reshape(input, {-1}), reshape(broadcast_to(rows, input.shape()), {-1}), input.dim(0)};
  }
  if (input.rank() != 1 || !offsets.defined() || offsets.rank() != 1)
    fail<ShapeError>(
        "[embedding_bag] expected a matrix of indices, or a vector and a vector of offsets, got "
        "shape {}{}",
        input.shape().to_string(),
        offsets.defined() ? " and " + offsets.shape().to_string() : std::string());
  if (offsets.dtype() != int32 && offsets.dtype() != int64)
    fail<DTypeError>("[embedding_bag] expected offsets of int32 or int64, got {}",
                     name_of(offsets.dtype()));
  const Dim count = offsets.dim(0) - (include_last ? 1 : 0);
  const Tensor begins = include_last ? slice(offsets, {0}, {count}) : offsets;
  // At each position one more for each bag that begins there.
  const Tensor begun =
      cumsum(unsorted_segment_sum(ones({count}, int32), begins, input.dim(0) + 1), 0);
  return {input, cast(slice(begun, {0}, {input.dim(0)}), int64) - 1.0, count};
}

Tensor maxima_of(const Tensor& rows, const Bags& bags, const Tensor& counts) {
  const Tensor sink = cast(where(counts, bags.bags, ones_like(bags.bags) * bags.count), int64);
  const Tensor none = zeros({bags.count + 1, rows.dim(1)}, rows.dtype());
  const Tensor maxima = index_reduce(none, 0, sink, rows, "amax", false);
  return slice(maxima, {0, 0}, {bags.count, -1});
}

}  // namespace

std::vector<Tensor> cubic_weights(const Tensor& t) {
  constexpr double kA = -0.75;
  const auto near = [](const Tensor& d) { return ((kA + 2.0) * d - (kA + 3.0)) * square(d) + 1.0; };
  const auto far = [](const Tensor& d) {
    return ((kA * d - 5.0 * kA) * d + 8.0 * kA) * d - 4.0 * kA;
  };
  return {far(t + 1.0), near(t), near(1.0 - t), far(2.0 - t)};
}

namespace functional {

Tensor grid_sample(const Tensor& x, const Tensor& grid, const GridSampleOptions& options) {
  expect_grid(x, grid, options);
  const Sampling how{beyond_of(options.padding_mode), options.align_corners};
  const Tensor positions = at_least_float32(grid);
  const int axes = x.rank() - 2;
  std::vector<SampledTaps> taps;  // of the grid the last one is that of the first axis
  for (int i = 0; i < axes; ++i)
    taps.push_back(sampled_taps(options.mode,
                                squeeze(positions.slice(-1, axes - 1 - i, axes - i), {-1}),
                                x.dim(i + 2), how));
  const Shape shape = taps[0][0].position.shape();
  Dims batch{-1};
  for (int i = 0; i < axes; ++i) batch.push_back(1);
  const Tensor first =
      broadcast_to(reshape(range(x.dim(0), {.dtype = int64}), Shape(batch)), shape);
  const Tensor y =
      Sampler(at_least_float32(x), taps).sum(0, first, ones_like(cast(first, bool_)), {});
  Dims channels_first{0, axes + 1};
  for (int axis = 1; axis <= axes; ++axis) channels_first.push_back(axis);
  return cast(transpose(y, channels_first), x.dtype());
}

Tensor affine_grid(const Tensor& theta, const Shape& size, const AffineGridOptions& options) {
  const int axes = size.rank() - 2;
  if ((axes != 2 && axes != 3) || theta.rank() != 3 ||
      !dim::may_equal(theta.size_word(0), size.word(0)) ||
      !dim::may_equal(theta.size_word(1), axes) || !dim::may_equal(theta.size_word(2), axes + 1))
    fail<ShapeError>(
        "[affine_grid] expected theta (batch, 2, 3) and a size (batch, channels, height, width), "
        "or "
        "(batch, 3, 4) and one of volumes, got shapes {} and {}",
        theta.shape().to_string(), size.to_string());
  if (!is_floating(theta.dtype()))
    fail<DTypeError>("[affine_grid] expected a floating dtype, got {}", name_of(theta.dtype()));
  std::vector<Dim> all;
  for (int i = 0; i < axes; ++i) all.push_back(size[i + 2]);
  std::vector<Tensor> parts;
  for (int i = axes - 1; i >= 0; --i) {
    const Dim n = all[static_cast<std::size_t>(i)];
    const Tensor at = (range(n, {.dtype = theta.dtype()}) * 2.0 - (n - 1)) /
                      (options.align_corners ? max(n - 1, 1) : n);
    Dims along;
    for (int k = 0; k < axes; ++k) along.push_back(k == i ? -1 : 1);
    parts.push_back(broadcast_to(reshape(at, Shape(along)), Shape(std::span<const Dim>(all))));
  }
  parts.push_back(ones_like(parts[0]));
  const Tensor points = reshape(stack(parts, -1), {-1, axes + 1});
  std::vector<Dim> shape = {size[0]};
  shape.insert(shape.end(), all.begin(), all.end());
  shape.push_back(axes);
  return reshape(matmul(expand_dims(points, 0), theta, {.transpose_b = true}),
                 Shape(std::span<const Dim>(shape)));
}

Tensor embedding_bag(const Tensor& input, const Tensor& weight, const Tensor& offsets,
                     const EmbeddingBagOptions& options) {
  const std::string& mode = options.mode;
  const Tensor& factors = options.per_sample_weights;
  if (mode != "sum" && mode != "mean" && mode != "max")
    fail<InvalidArgumentError>(
        "[embedding_bag] expected mode \"sum\", \"mean\" or \"max\", got \"{}\"", mode);
  if (factors.defined() && mode != "sum")
    fail<InvalidArgumentError>(
        "[embedding_bag] expected mode \"sum\" with per_sample_weights, got \"{}\"", mode);
  if (weight.rank() != 2 || (factors.defined() && !may_agree(factors.shape(), input.shape())))
    fail<ShapeError>(
        "[embedding_bag] expected a weight (rows, features){}, got shape {}{}",
        factors.defined() ? " and a factor for each index" : "", weight.shape().to_string(),
        factors.defined() ? " and factors of shape " + factors.shape().to_string() : "");
  const Bags bags = bags_of(input, offsets, options.include_last_offset);
  Tensor rows = gather(weight, bags.indices);
  Tensor counts = ones_like(cast(bags.indices, bool_));
  if (options.padding_idx) {
    const Dim index =
        *options.padding_idx < 0 ? weight.dim(0) + *options.padding_idx : Dim(*options.padding_idx);
    counts = not_equal(bags.indices, index);
    rows = where(expand_dims(counts, 1), rows, 0.0);
  }
  if (mode == "max") return maxima_of(rows, bags, counts);
  if (factors.defined()) rows = rows * expand_dims(reshape(factors, {-1}), 1);
  const Tensor sums = unsorted_segment_sum(rows, bags.bags, bags.count);
  if (mode == "sum") return sums;
  const Tensor elements = unsorted_segment_sum(cast(counts, weight.dtype()), bags.bags, bags.count);
  return sums / expand_dims(maximum(elements, 1.0), 1);
}

}  // namespace functional

EmbeddingBagImpl::EmbeddingBagImpl(std::int64_t num_embeddings, std::int64_t embedding_dim,
                                   const EmbeddingBagArguments& options)
    : options_(options) {
  if (num_embeddings < 1 || embedding_dim < 1)
    fail<InvalidArgumentError>("[embedding_bag] expected sizes of 1 or more, got {} and {}",
                               num_embeddings, embedding_dim);
  Tensor table = random::normal({num_embeddings, embedding_dim});
  if (const auto index = options.padding_idx) {
    if (*index < -num_embeddings || *index >= num_embeddings)
      fail<InvalidArgumentError>("[embedding_bag] expected a padding_idx of {} rows, got {}",
                                 num_embeddings, *index);
    const Tensor rows = range(num_embeddings, {.dtype = int64});
    const Tensor other =
        not_equal(rows, static_cast<double>((*index + num_embeddings) % num_embeddings));
    table = where(expand_dims(other, 1), table, 0.0);
  }
  weight = register_parameter("weight", table);
}

Tensor EmbeddingBagImpl::forward(const Tensor& input) const {
  return functional::embedding_bag(input, weight, {},
                                   {.mode = options_.mode, .padding_idx = options_.padding_idx});
}

Tensor EmbeddingBagImpl::forward(const Tensor& input, const Tensor& offsets) {
  return functional::embedding_bag(input, weight, offsets,
                                   {.mode = options_.mode,
                                    .include_last_offset = options_.include_last_offset,
                                    .padding_idx = options_.padding_idx});
}

EmbeddingBag::EmbeddingBag(std::int64_t num_embeddings, std::int64_t embedding_dim,
                           const EmbeddingBagArguments& options)
    : ModuleHolder(std::make_shared<EmbeddingBagImpl>(num_embeddings, embedding_dim, options)) {}

}  // namespace tandem::nn
