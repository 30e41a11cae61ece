// Runs functions on the CPU and, lowered to StableHLO, through a PJRT plug-in, and compares the
// results.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "support/pjrt.h"
#include "tandem/autodiff.h"
#include "tandem/tensor.h"

namespace tandem::testing {

using Tensors = std::vector<Tensor>;
using Step = std::function<Tensors(const Tensors&)>;

// How far an element may be from the CPU's: `ulps` in the last place of its dtype, plus, because
// sums are added in another order, `sums` in the last place (of the type that sums are computed in)
// of the tensor's largest element. Integers must be equal.
struct LoweredOptions {
  double ulps = 4.0;
  double sums = 32.0;
  int runs = 1;
  bool traces_sizes = false;  // traces inputs of any sizes, which are known when it is lowered
  std::string plugin = first_plugin();
};

// Traces `step` and runs the trace `runs` times. Expects the same results in each, and the same new
// elements of variables. The next run begins with those of the CPU. REQUIRES: a plug-in.
void expect_lowered(const std::string& name, const Step& step, const Tensors& inputs,
                    const LoweredOptions& options = {});

// The results of one run of the trace, lowered.
Tensors run_lowered(const std::string& name, const Step& step, const Tensors& inputs);

struct LoweredCase {
  std::string name;
  Tensors inputs;
  std::function<Tensor(const Tensors&)> call;
  LoweredOptions options{};
};
// Does so with the result of each call and, if that is floating, with the gradients of the floating
// inputs.
void expect_lowered(const std::vector<LoweredCase>& cases);

// A gradient for a result, whose elements differ in size and sign.
Tensor slope_of(const Tensor& result);
// The gradients of `result` for that gradient, those that are defined.
Tensors gradients_of(GradientTape& tape, const Tensor& result, const Tensors& sources);

}  // namespace tandem::testing
