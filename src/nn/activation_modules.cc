// PyTorch's modules of activations and other small parts.
#include "tandem/activation_modules.h"

#include <cmath>

#include "core/status.h"
#include "nn/function_module.h"
#include "tandem/creation.h"
#include "tandem/math.h"
#include "tandem/random.h"

namespace tandem::nn {
ReLU6::ReLU6() : ModuleHolder(function_module("relu6", [](const Tensor& x) { return relu6(x); })) {}
SELU::SELU() : ModuleHolder(function_module("selu", [](const Tensor& x) { return selu(x); })) {}
CELU::CELU(double alpha)
    : ModuleHolder(function_module("celu", [alpha](const Tensor& x) { return celu(x, alpha); })) {}
Mish::Mish() : ModuleHolder(function_module("mish", [](const Tensor& x) { return mish(x); })) {}
Hardswish::Hardswish()
    : ModuleHolder(function_module("hardswish", [](const Tensor& x) { return hard_swish(x); })) {}
Hardsigmoid::Hardsigmoid()
    : ModuleHolder(
          function_module("hardsigmoid", [](const Tensor& x) { return hard_sigmoid(x); })) {}
Hardtanh::Hardtanh(double min_val, double max_val)
    : ModuleHolder(function_module("hardtanh", [min_val, max_val](const Tensor& x) {
        return hard_tanh(x, min_val, max_val);
      })) {}
Hardshrink::Hardshrink(double lambd)
    : ModuleHolder(function_module("hardshrink",
                                   [lambd](const Tensor& x) { return hard_shrink(x, lambd); })) {}
Softshrink::Softshrink(double lambd)
    : ModuleHolder(function_module("softshrink",
                                   [lambd](const Tensor& x) { return soft_shrink(x, lambd); })) {}
Tanhshrink::Tanhshrink()
    : ModuleHolder(function_module("tanhshrink", [](const Tensor& x) { return tanh_shrink(x); })) {}
Softsign::Softsign()
    : ModuleHolder(function_module("softsign", [](const Tensor& x) { return softsign(x); })) {}
LogSigmoid::LogSigmoid()
    : ModuleHolder(function_module("log_sigmoid", [](const Tensor& x) { return log_sigmoid(x); })) {
}
Threshold::Threshold(double threshold, double value)
    : ModuleHolder(function_module("threshold", [threshold, value](const Tensor& x) {
        return nn::threshold(x, threshold, value);
      })) {}
GLU::GLU(std::int64_t dim)
    : ModuleHolder(function_module("glu", [dim](const Tensor& x) { return glu(x, dim); })) {}
Softmin::Softmin(std::int64_t dim)
    : ModuleHolder(function_module("softmin", [dim](const Tensor& x) { return softmin(x, dim); })) {
}

PReLUImpl::PReLUImpl(const PReLUArguments& options) {
  if (options.num_parameters < 1)
    fail<InvalidArgumentError>("[prelu] expected 1 weight or more, got {}", options.num_parameters);
  weight = register_parameter("weight", full({options.num_parameters}, options.init));
}

Tensor PReLUImpl::forward(const Tensor& input) const { return functional::prelu(input, weight); }

RReLUImpl::RReLUImpl(double lower, double upper) : lower_(lower), upper_(upper) {
  if (!(lower <= upper))
    fail<InvalidArgumentError>(
        "[rrelu] expected a lower limit of at most the upper one, got {} and {}", lower, upper);
}

Tensor RReLUImpl::forward(const Tensor& input) const {
  return functional::rrelu(input, lower_, upper_, is_training());
}

AlphaDropoutImpl::AlphaDropoutImpl(double p) : p_(p) {
  if (!(p >= 0.0 && p < 1.0))
    fail<InvalidArgumentError>("[alpha_dropout] expected a probability in [0, 1), got {}", p);
}

Tensor AlphaDropoutImpl::forward(const Tensor& input) const {
  if (!is_training() || p_ == 0.0) return input;
  constexpr double kLowest = -1.7580993408473766;  // -scale * alpha of SELU
  const double scale = 1.0 / std::sqrt((1.0 - p_) * (1.0 + p_ * kLowest * kLowest));
  // dropout() of ones gives 0 or 1 / (1 - p).
  const Tensor kept = greater(dropout(ones(input.shape(), input.dtype()), p_), 0.0);
  return where(kept, input, kLowest) * scale - scale * kLowest * p_;
}

PReLU::PReLU(const PReLUArguments& options) : ModuleHolder(std::make_shared<PReLUImpl>(options)) {}

RReLU::RReLU(double lower, double upper)
    : ModuleHolder(std::make_shared<RReLUImpl>(lower, upper)) {}

AlphaDropout::AlphaDropout(double p) : ModuleHolder(std::make_shared<AlphaDropoutImpl>(p)) {}

}  // namespace tandem::nn
