/// @file
/// More activations, made of the operations of tandem/nn.h and tandem/math.h: with Keras's names in
/// `nn` and PyTorch's in `nn::functional`.
#pragma once

#include <cstdint>
#include <string_view>

#include "tandem/nn.h"
#include "tandem/tensor.h"

namespace tandem::nn {

// x is floating-point: DTypeError otherwise.
[[nodiscard]] Tensor hard_sigmoid(const Tensor& x);  ///< min(max(x + 3, 0), 6) / 6
[[nodiscard]] Tensor hard_swish(const Tensor& x);    ///< x * hard_sigmoid(x)
/// min(max(x, low), high). Throws InvalidArgumentError for a low above high.
[[nodiscard]] Tensor hard_tanh(const Tensor& x, double low = -1.0, double high = 1.0);
[[nodiscard]] Tensor mish(const Tensor& x);         ///< x * tanh(softplus(x))
[[nodiscard]] Tensor softsign(const Tensor& x);     ///< x / (1 + |x|)
[[nodiscard]] Tensor log_sigmoid(const Tensor& x);  ///< log(sigmoid(x)), without overflow
/// x if x > 0, else alpha * (exp(x / alpha) - 1). Throws InvalidArgumentError for an alpha that is
/// not positive.
[[nodiscard]] Tensor celu(const Tensor& x, double alpha = 1.0);
/// (x + sqrt(x^2 + b)) / 2. Throws InvalidArgumentError for a negative b.
[[nodiscard]] Tensor squareplus(const Tensor& x, double b = 4.0);
/// 0 up to -1, x from 1 on, and (x + 1)^2 / 4 between.
[[nodiscard]] Tensor sparse_plus(const Tensor& x);
/// 0 up to -1, 1 from 1 on, and (x + 1) / 2 between: the derivative of sparse_plus().
[[nodiscard]] Tensor sparse_sigmoid(const Tensor& x);
[[nodiscard]] Tensor tanh_shrink(const Tensor& x);  ///< x - tanh(x)
/// x where |x| > threshold, else 0.
[[nodiscard]] Tensor hard_shrink(const Tensor& x, double threshold = 0.5);
/// x brought nearer to 0 by the threshold, and 0 where |x| is below it. Throws InvalidArgumentError
/// for a negative one.
[[nodiscard]] Tensor soft_shrink(const Tensor& x, double threshold = 0.5);
/// x where x > threshold, else `value`.
[[nodiscard]] Tensor threshold(const Tensor& x, double threshold, double value);
/// The first half of x along an axis times the sigmoid of the second (Dauphin et al., 2017). Throws
/// ShapeError for an axis of a size that is odd or not known.
[[nodiscard]] Tensor glu(const Tensor& x, std::int64_t axis = -1);
[[nodiscard]] Tensor softmin(const Tensor& x, std::int64_t axis = -1);  ///< softmax(-x)

namespace functional {
// Those that are the same there.
using nn::celu;
using nn::glu;
using nn::mish;
using nn::relu6;
using nn::softmin;
using nn::softsign;
using nn::threshold;
[[nodiscard]] Tensor hardsigmoid(const Tensor& x);  ///< as nn::hard_sigmoid()
[[nodiscard]] Tensor hardswish(const Tensor& x);    ///< as nn::hard_swish()
/// As nn::hard_tanh().
[[nodiscard]] Tensor hardtanh(const Tensor& x, double min_val = -1.0, double max_val = 1.0);
[[nodiscard]] Tensor hardshrink(const Tensor& x, double lambd = 0.5);  ///< as nn::hard_shrink()
[[nodiscard]] Tensor softshrink(const Tensor& x, double lambd = 0.5);  ///< as nn::soft_shrink()
[[nodiscard]] Tensor tanhshrink(const Tensor& x);                      ///< as nn::tanh_shrink()
[[nodiscard]] Tensor logsigmoid(const Tensor& x);                      ///< as nn::log_sigmoid()
/// Log(1 + exp(beta * x)) / beta, and x where beta * x > threshold. Throws InvalidArgumentError for
/// a beta that is not positive.
[[nodiscard]] Tensor softplus(const Tensor& x, double beta = 1.0, double threshold = 20.0);
/// x * Phi(x): exact with "none", its approximation with "tanh". Throws InvalidArgumentError for
/// another name.
[[nodiscard]] Tensor gelu(const Tensor& x, std::string_view approximate = "none");
/// x if x > 0, else weight * x, with one weight, or one per element of axis 1. Throws ShapeError
/// for other shapes. As torch.nn.functional.prelu.
[[nodiscard]] Tensor prelu(const Tensor& x, const Tensor& weight);
/// x if x > 0, else a * x: in training with an `a` for each element, uniform between the limits,
/// else with their mean. Throws InvalidArgumentError for a lower limit above the upper one. As
/// torch.nn.functional.rrelu.
[[nodiscard]] Tensor rrelu(const Tensor& x, double lower = 1.0 / 8, double upper = 1.0 / 3,
                           bool training = false);
}  // namespace functional

}  // namespace tandem::nn
