#include "ops/math/binary_kernel.h"

#include "core/parallel.h"

namespace tandem {

void run_binary(KernelContext& c, const BinaryLoops& loops) {
  const TensorView &a = c.inputs[0], &b = c.inputs[1];
  const auto* left = a.as<const std::byte>();
  const auto* right = b.as<const std::byte>();
  auto* out = c.outputs[0].as<std::byte>();
  const auto in_bytes = static_cast<std::int64_t>(loops.input_size);
  const auto out_bytes = static_cast<std::int64_t>(loops.output_size);
  const std::int64_t count = c.outputs[0].size();
  if (count == 0) return;
  if (loops.check_right) loops.check_right(*c.op, right, b.size());
  if (a.shape == b.shape) {
    parallel_for(count, kElementwiseGrain, [&](std::int64_t begin, std::int64_t end) {
      loops.tensor_tensor(left + begin * in_bytes, right + begin * in_bytes,
                          out + begin * out_bytes, end - begin);
    });
    return;
  }
  const BroadcastPlan plan(c.outputs[0].shape, std::array{&a.shape, &b.shape});
  const BinaryLoops::Loop loop = plan.inner_stride(1) == 0   ? loops.tensor_number
                                 : plan.inner_stride(0) == 0 ? loops.number_tensor
                                                             : loops.tensor_tensor;
  parallel_for(count, kElementwiseGrain, [&](std::int64_t begin, std::int64_t end) {
    plan.for_runs(
        begin, end, [&](std::int64_t at, const BroadcastPlan::Offsets& from, std::int64_t length) {
          loop(left + from[0] * in_bytes, right + from[1] * in_bytes, out + at * out_bytes, length);
        });
  });
}

void run_binary_with_number(KernelContext& c, const BinaryLoops& loops, const void* number,
                            bool number_is_left) {
  const auto* x = c.inputs[0].as<const std::byte>();
  auto* out = c.outputs[0].as<std::byte>();
  const auto in_bytes = static_cast<std::int64_t>(loops.input_size);
  const auto out_bytes = static_cast<std::int64_t>(loops.output_size);
  const std::int64_t count = c.inputs[0].size();
  if (number_is_left && loops.check_right) loops.check_right(*c.op, x, count);
  parallel_for(count, kElementwiseGrain, [&](std::int64_t begin, std::int64_t end) {
    if (number_is_left)
      loops.number_tensor(number, x + begin * in_bytes, out + begin * out_bytes, end - begin);
    else
      loops.tensor_number(x + begin * in_bytes, number, out + begin * out_bytes, end - begin);
  });
}

}  // namespace tandem
