// Apex's options of DistributedDataParallel.
#include <limits>

#include "core/status.h"
#include "parallel/ddp_state.h"
#include "tandem/apex.h"
#include "tandem/math.h"

namespace tandem::apex::parallel {
namespace {

using Base = tandem::parallel::DistributedDataParallel;
using tandem::parallel::CommHook;
using tandem::parallel::GradBucket;
using tandem::parallel::GradientReduction;

// Divides, sums and multiplies in the dtype that is sent.
CommHook divided_sum(const DistributedDataParallelOptions& options) {
  return [options](const GradBucket& bucket) -> std::function<std::vector<Tensor>()> {
    const double factor = options.gradient_predivide_factor;
    Tensor flat = bucket.buffer;
    if (options.allreduce_always_fp32 && size_of(flat.dtype()) < size_of(float32))
      flat = cast(flat, float32);
    if (factor != 1.0) flat = flat / factor;
    comm::Work work = comm::all_reduce_async(std::move(flat), {.group = bucket.group});
    const double after = options.gradient_average ? factor / bucket.group.size() : 1.0;
    return [work, bucket, after]() mutable {
      Tensor sum = work.result();
      if (after != 1.0) sum = sum * after;
      return bucket.split(cast(sum, bucket.buffer.dtype()));
    };
  };
}

GradientReduction reduction_of(const DistributedDataParallelOptions& options) {
  if (options.message_size < 1)
    fail<InvalidArgumentError>(
        "[DistributedDataParallel] expected a message_size of at least 1, got {}",
        options.message_size);
  if (!(options.gradient_predivide_factor > 0.0))
    fail<InvalidArgumentError>(
        "[DistributedDataParallel] expected a positive gradient_predivide_factor, got {}",
        options.gradient_predivide_factor);
  GradientReduction reduction;
  const std::size_t size = options.delay_allreduce ? std::numeric_limits<std::size_t>::max()
                                                   : static_cast<std::size_t>(options.message_size);
  reduction.sizes = {.first = size, .others = size, .in_elements = true};
  reduction.delayed = options.delay_allreduce;
  if (options.allreduce_always_fp32 || !options.gradient_average ||
      options.gradient_predivide_factor != 1.0)
    reduction.hook = divided_sum(options);
  return reduction;
}

}  // namespace

DistributedDataParallel::DistributedDataParallel(Model module,
                                                 const DistributedDataParallelOptions& options)
    : Base(std::make_shared<Base::State>(
          std::move(module),
          tandem::parallel::DistributedDataParallelOptions{.broadcast_buffers = false,
                                                           .process_group = options.process_group,
                                                           .average_by_examples = false},
          reduction_of(options))) {}

}  // namespace tandem::apex::parallel
