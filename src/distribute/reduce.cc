// Reduces and gathers the replicas' values between steps.
#include <limits>

#include "core/status.h"
#include "distribute/strategy_impl.h"
#include "ops/math/element_count.h"
#include "runtime/placement.h"
#include "runtime/replica_invariance.h"
#include "sync/tree_sum.h"
#include "tandem/array.h"
#include "tandem/creation.h"
#include "tandem/math.h"

namespace tandem::distribute {
namespace {

// The values of this process's replicas, on the device of the first one.
struct Collected {
  std::vector<Tensor> tensors;
  // Other processes have examples and this one has none: the tensors only give shapes and dtypes.
  bool is_padding = false;
};

Collected collect(StrategyImpl& strategy, const PerReplica<Tensor>& value, const char* what) {
  Collected collected;
  DeviceImpl& device = *strategy.devices().front();
  for (std::size_t replica = 0; replica < value.size(); ++replica)
    if (value.present(replica)) collected.tensors.push_back(copy_to_device(value[replica], device));
  if (!collected.tensors.empty()) return collected;
  if (!strategy.requires_all_replicas() || value.size() == 0 || !value[0].defined())
    fail<InvalidArgumentError>("[{}] no replica has a value", what);
  return {.tensors = {copy_to_device(value[0], device)}, .is_padding = true};
}

// A tensor of `like`'s shape that does not change the result of a reduction by `op`.
Tensor neutral(ReduceOp op, const Tensor& like) {
  const auto of_limits = [&](double extreme, bool lowest) {
    if (is_floating(like.dtype())) return full(like.shape(), extreme, {.dtype = like.dtype()});
    using Limits64 = std::numeric_limits<std::int64_t>;
    using Limits32 = std::numeric_limits<std::int32_t>;
    const std::int64_t limit = like.dtype() == int64 ? (lowest ? Limits64::min() : Limits64::max())
                               : like.dtype() == int32
                                   ? (lowest ? Limits32::min() : Limits32::max())
                                   : (lowest ? 0 : 255);
    return broadcast_to(constant(std::vector<std::int64_t>{limit}, {.dtype = like.dtype()}),
                        like.shape());
  };
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kTreeSum:
    case ReduceOp::kMean: break;
    case ReduceOp::kMin: return of_limits(kInfinity, false);
    case ReduceOp::kMax: return of_limits(-kInfinity, true);
    case ReduceOp::kProduct: return ones_like(like);
  }
  return zeros_like(like);
}

Tensor combine(ReduceOp op, const std::vector<Tensor>& tensors) {
  if (tensors.size() == 1) return tensors.front();
  if (op == ReduceOp::kSum) return add_n(tensors);
  if (op == ReduceOp::kTreeSum) {
    TreeSum sum;
    for (const Tensor& tensor : tensors) sum.add(tensor);
    return sum.total();
  }
  Tensor result = tensors.front();
  for (std::size_t i = 1; i < tensors.size(); ++i)
    result = op == ReduceOp::kMin   ? minimum(result, tensors[i])
             : op == ReduceOp::kMax ? maximum(result, tensors[i])
                                    : multiply(result, tensors[i]);
  return result;
}

// `like` with size 0 along `axis`.
Tensor empty_along(const Tensor& like, std::int64_t axis) {
  Dims sizes = like.shape().words();
  sizes[static_cast<int>(axis < 0 ? axis + like.rank() : axis)] = 0;
  return zeros(Shape(sizes), {.dtype = like.dtype()});
}

Tensor reduce_axis(ReduceOp op, const Tensor& tensor, std::int64_t axis) {
  const ReduceOptions options{.axis = Dims{axis}};
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kTreeSum:
    case ReduceOp::kMean: return reduce_sum(tensor, options);
    case ReduceOp::kMin: return reduce_min(tensor, options);
    case ReduceOp::kMax: return reduce_max(tensor, options);
    case ReduceOp::kProduct: return reduce_prod(tensor, options);
  }
  return tensor;
}

}  // namespace

namespace {

Tensor reduce_values(StrategyImpl& strategy, ReduceOp op, const PerReplica<Tensor>& value,
                     std::optional<std::int64_t> axis) {
  Collected collected = collect(strategy, value, "reduce");
  std::vector<Tensor>& tensors = collected.tensors;
  OnDevice on(*strategy.devices().front());
  // The number of elements of each mean: a constant if it is known now, else a node of the graph.
  auto elements = static_cast<std::int64_t>(tensors.size());
  std::vector<Tensor> counts;
  if (axis) {
    elements = 0;
    for (Tensor& tensor : tensors) {
      const std::int64_t size = tensor.size_word(*axis);
      if (size >= 0)
        elements += size;
      else
        counts.push_back(element_count({size}, tensor.dtype()));
      tensor = reduce_axis(op, tensor, *axis);
    }
  }
  const ReduceOp sum = invariant_parts() > 0 ? ReduceOp::kTreeSum : ReduceOp::kSum;
  const ReduceOp summing = op == ReduceOp::kMean || op == ReduceOp::kSum ? sum : op;
  Tensor result = combine(summing, tensors);
  if (const std::shared_ptr<WorkerCollectives> workers = strategy.workers()) {
    if (collected.is_padding) result = neutral(op, result);
    result = workers->all_reduce(result, summing, "reduce");
    if (op != ReduceOp::kMean) return result;
    Tensor count = full(Shape::scalar(), static_cast<double>(elements), {.dtype = float64});
    for (const Tensor& known_later : counts) count = add(count, cast(known_later, float64));
    if (collected.is_padding) count = zeros_like(count);
    const Tensor all = workers->all_reduce(count, ReduceOp::kSum, "reduce");
    return cast(divide(cast(result, float64), all), result.dtype());
  }
  if (op != ReduceOp::kMean || (!axis && tensors.size() == 1)) return result;
  if (counts.empty()) return divide(result, static_cast<double>(elements));
  return divide(result, add(add_n(counts), static_cast<double>(elements)));
}

}  // namespace

Tensor Strategy::reduce(ReduceOp op, const PerReplica<Tensor>& value,
                        std::optional<std::int64_t> axis) const {
  require_cross_replica("reduce");
  impl_->check_reduce(op, "reduce");
  check(value, "reduce");
  return reduce_values(*impl_, op, value, axis);
}

Tensor Strategy::reduce(ReduceOp op, const Tensor& value, std::optional<std::int64_t> axis) const {
  require_cross_replica("reduce");
  impl_->check_reduce(op, "reduce");
  return reduce_values(*impl_, op, PerReplica<Tensor>(std::vector<Tensor>{value}), axis);
}

Tensor Strategy::gather(const PerReplica<Tensor>& value, std::int64_t axis) const {
  require_cross_replica("gather");
  check(value, "gather");
  const Collected collected = collect(*impl_, value, "gather");
  DeviceImpl& device = *impl_->devices().front();
  OnDevice on(device);
  const Tensor mine = concat(collected.tensors, axis);
  const std::shared_ptr<WorkerCollectives> workers = impl_->workers();
  if (!workers) return mine;
  return copy_to_device(
      workers->gather(collected.is_padding ? empty_along(mine, axis) : mine, axis, "gather"),
      device);
}

}  // namespace tandem::distribute
