// Averages losses over the global batch.
#include "core/status.h"
#include "ops/math/element_count.h"
#include "runtime/replica_context.h"
#include "tandem/creation.h"
#include "tandem/math.h"
#include "tandem/nn.h"

namespace tandem::nn {
namespace {

std::int64_t replicas_in_sync() {
  const ReplicaContext* replica = ReplicaContext::current();
  return replica ? replica->num_replicas() : 1;
}

// The number of examples of the step over all replicas. 0 if each replica has as many examples as
// losses.
std::int64_t global_batch_size(const AverageLossOptions& options) {
  if (options.global_batch_size) {
    if (*options.global_batch_size < 1)
      fail<InvalidArgumentError>(
          "[compute_average_loss] expected a global batch size of 1 or more, got {}",
          *options.global_batch_size);
    return *options.global_batch_size;
  }
  const ReplicaContext* replica = ReplicaContext::current();
  return replica && replica->global_examples() >= 0
             ? std::max<std::int64_t>(1, replica->global_examples())
             : 0;
}

}  // namespace

Tensor compute_average_loss(const Tensor& per_example_loss, const AverageLossOptions& options) {
  if (per_example_loss.rank() < 1)
    fail<ShapeError>(
        "[compute_average_loss] expected per-example losses of rank 1 or more, got a scalar");
  const std::int64_t batch = global_batch_size(options);
  const Tensor weighted =
      options.sample_weight.defined()
          ? per_example_loss * cast(options.sample_weight, per_example_loss.dtype())
          : per_example_loss;
  const Tensor sum = reduce_sum(weighted);
  if (batch > 0) return sum / static_cast<double>(batch);
  const std::int64_t here = per_example_loss.size_word(0);
  if (here < 0) return sum / element_count({here, replicas_in_sync()}, sum.dtype());
  // A batch without examples contributes 0.
  return sum / static_cast<double>(std::max<std::int64_t>(1, replicas_in_sync() * here));
}

Tensor scale_regularization_loss(const Tensor& regularization_loss) {
  return reduce_sum(regularization_loss) / static_cast<double>(replicas_in_sync());
}

}  // namespace tandem::nn
