#include "ops/nn/all_finite.h"

#include <atomic>
#include <cstdint>
#include <vector>

#include "core/multiversion.h"
#include "core/parallel.h"
#include "core/status.h"
#include "op/record.h"
#include "ops/math/elementwise.h"
#include "ops/op_list.h"
#include "runtime/dispatch.h"

namespace tandem {
namespace {

void infer_all_finite(InferContext& c) {
  if (c.num_inputs() == 0)
    throw InvalidArgumentError("[AllFinite] expected at least one tensor, got none");
  for (int i = 0; i < c.num_inputs(); ++i) check_dtype("AllFinite", kFloating, c.dtype(i));
  c.add_output(bool_, Shape::scalar());
}

// The exponent of an infinity or a NaN has all bits, which makes it the largest. A maximum of
// integers is vectorised.
template <class Bits>
TANDEM_MULTIVERSION bool is_finite_range(const Bits* elements, std::int64_t count, Bits exponent) {
  Bits largest = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const Bits bits = elements[i] & exponent;
    largest = bits > largest ? bits : largest;
  }
  return largest != exponent;
}

bool is_finite_range(const TensorView& tensor, std::int64_t begin, std::int64_t count) {
  const auto check = [&]<class Bits>(Bits exponent) {
    return is_finite_range(tensor.as<const Bits>() + begin, count, exponent);
  };
  switch (tensor.dtype) {
    case DType::kFloat64: return check(std::uint64_t{0x7ff0000000000000});
    case DType::kFloat16: return check(std::uint16_t{0x7c00});
    case DType::kBFloat16: return check(std::uint16_t{0x7f80});
    default: return check(std::uint32_t{0x7f800000});
  }
}

void all_finite_kernel(KernelContext& c) {
  std::atomic<bool> finite = true;
  for (const TensorView& tensor : c.inputs)
    parallel_for(tensor.size(), kElementwiseGrain, [&](std::int64_t begin, std::int64_t end) {
      if (!is_finite_range(tensor, begin, end - begin))
        finite.store(false, std::memory_order_relaxed);
    });
  *c.outputs[0].as<bool>() = finite.load(std::memory_order_relaxed);
}

const OpDef kAllFinite = {
    .name = "AllFinite", .infer = infer_all_finite, .cpu_kernel = all_finite_kernel};

}  // namespace

Tensor all_finite(TensorList tensors) {
  std::vector<const Tensor*> inputs;
  inputs.reserve(tensors.size());
  for (const Tensor& tensor : tensors) inputs.push_back(&tensor);
  return run_single(kAllFinite, inputs, NoAttrs());
}

OpList all_finite_ops() { return list_of<kAllFinite>(); }

}  // namespace tandem
