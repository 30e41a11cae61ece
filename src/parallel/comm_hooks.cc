// Communication hooks that reduce gradients in half precision.
#include "tandem/ddp.h"
#include "tandem/math.h"

namespace tandem::parallel::hooks {
namespace {

CommHook compress(DType dtype) {
  return [dtype](const GradBucket& bucket) -> std::function<std::vector<Tensor>()> {
    comm::Work work = comm::all_reduce_async(cast(bucket.buffer, dtype), {.group = bucket.group});
    return [work, bucket]() mutable {
      return bucket.split(cast(work.result(), bucket.buffer.dtype()));
    };
  };
}

}  // namespace

CommHook fp16_compress() { return compress(float16); }
CommHook bf16_compress() { return compress(bfloat16); }

}  // namespace tandem::parallel::hooks
