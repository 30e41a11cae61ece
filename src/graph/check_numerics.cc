#include "graph/check_numerics.h"

#include <cmath>
#include <cstring>

#include "core/status.h"
#include "op/dtype_switch.h"
#include "op/record.h"

namespace tandem {
namespace {

struct NonFinite {
  std::int64_t nans = 0, infinities = 0;
  std::string to_string() const {
    if (infinities == 0) return fmt::format("{} NaN", nans);
    if (nans == 0) return fmt::format("{} infinite", infinities);
    return fmt::format("{} NaN and {} infinite", nans, infinities);
  }
};

NonFinite count(const TensorView& view) {
  NonFinite found;
  if (!is_floating(view.dtype)) return found;
  switch_dtype(view.dtype, [&](auto tag) {
    const auto* elements = view.as<typename decltype(tag)::type>();
    for (std::int64_t i = 0; i < view.size(); ++i) {
      const auto element = static_cast<double>(elements[i]);
      found.nans += std::isnan(element) ? 1 : 0;
      found.infinities += std::isinf(element) ? 1 : 0;
    }
  });
  return found;
}

std::string line(const std::string& lines, std::size_t number) {
  std::size_t begin = 0;
  for (; number > 0 && begin != std::string::npos; --number) {
    begin = lines.find('\n', begin);
    if (begin != std::string::npos) ++begin;
  }
  return begin == std::string::npos ? "" : lines.substr(begin, lines.find('\n', begin) - begin);
}

void infer(InferContext& c) {
  if (c.num_inputs() < 1 || !is_floating(c.dtype(0)))
    throw InvalidArgumentError("[CheckNumerics] expected a floating tensor to check");
  c.add_output(c.dtype(0), c.shape(0));
}

void kernel(KernelContext& context) {
  const TensorView& result = context.inputs[0];
  const std::span<const TensorView> all(context.inputs.begin(), context.inputs.end());
  require_finite(context.attrs<CheckNumericsAttrs>(), result, all.subspan(1));
  const std::size_t bytes = static_cast<std::size_t>(result.size()) * size_of(result.dtype);
  void* to = context.outputs[0].data;
  if (bytes > 0 && to != result.data) std::memcpy(to, result.data, bytes);
}

void gradient(GradContext& c) { c.set_grad(0, c.grad()); }

}  // namespace

void require_finite(const CheckNumericsAttrs& what, const TensorView& result,
                    std::span<const TensorView> inputs) {
  const NonFinite found = count(result);
  if (found.nans == 0 && found.infinities == 0) return;
  std::string origin = "; all of its inputs are finite";
  bool infinite_before = false;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].data == result.data) continue;
    const NonFinite before = count(inputs[i]);
    if (before.nans == 0 && before.infinities == 0) continue;
    infinite_before = infinite_before || before.infinities > 0;
    const std::string name = line(what.inputs, i);
    origin = fmt::format(
        "; its input {}{} of shape {} has {} already: from the data, a variable or a constant", i,
        name.empty() ? "" : " (" + name + ")", inputs[i].shape.to_string(), before.to_string());
    if (before.nans > 0) break;
  }
  if (found.nans == 0 && infinite_before) return;
  fail<InvalidArgumentError>("[check_numerics] {} gave {} of {} elements (shape {}, dtype {}){}",
                             what.operation, found.to_string(), result.size(),
                             result.shape.to_string(), name_of(result.dtype), origin);
}

const OpDef kCheckNumerics = {.name = "CheckNumerics",
                              .attrs = &attrs_type<CheckNumericsAttrs>,
                              .infer = infer,
                              .gradient = gradient,
                              .cpu_kernel = kernel,
                              .traits = kInPlace | kStorage};

}  // namespace tandem
