/// @file
/// Modules of activations and other small parts, with PyTorch's names and defaults. As torch.nn.
#pragma once

#include <cstdint>
#include <memory>

#include "tandem/activations.h"
#include "tandem/module.h"
#include "tandem/tensor.h"
#include "tandem/variable.h"

namespace tandem::nn {

/// min(max(x, 0), 6). As torch.nn.ReLU6.
class ReLU6 : public ModuleHolder<FunctionModule> {
 public:
  using ModuleHolder::ModuleHolder;
  ReLU6();  ///< a module
};
/// Scaled exponential linear unit. As torch.nn.SELU.
class SELU : public ModuleHolder<FunctionModule> {
 public:
  using ModuleHolder::ModuleHolder;
  SELU();  ///< a module
};
/// functional::celu(). As torch.nn.CELU.
class CELU : public ModuleHolder<FunctionModule> {
 public:
  using ModuleHolder::ModuleHolder;
  explicit CELU(double alpha = 1.0);  ///< a module
};
/// x * tanh(softplus(x)). As torch.nn.Mish.
class Mish : public ModuleHolder<FunctionModule> {
 public:
  using ModuleHolder::ModuleHolder;
  Mish();  ///< a module
};
/// x * hardsigmoid(x). As torch.nn.Hardswish.
class Hardswish : public ModuleHolder<FunctionModule> {
 public:
  using ModuleHolder::ModuleHolder;
  Hardswish();  ///< a module
};
/// min(max(x + 3, 0), 6) / 6. As torch.nn.Hardsigmoid.
class Hardsigmoid : public ModuleHolder<FunctionModule> {
 public:
  using ModuleHolder::ModuleHolder;
  Hardsigmoid();  ///< a module
};
/// min(max(x, min_val), max_val). As torch.nn.Hardtanh.
class Hardtanh : public ModuleHolder<FunctionModule> {
 public:
  using ModuleHolder::ModuleHolder;
  explicit Hardtanh(double min_val = -1.0, double max_val = 1.0);  ///< a module
};
/// x where |x| > lambd, else 0. As torch.nn.Hardshrink.
class Hardshrink : public ModuleHolder<FunctionModule> {
 public:
  using ModuleHolder::ModuleHolder;
  explicit Hardshrink(double lambd = 0.5);  ///< a module
};
/// functional::softshrink(). As torch.nn.Softshrink.
class Softshrink : public ModuleHolder<FunctionModule> {
 public:
  using ModuleHolder::ModuleHolder;
  explicit Softshrink(double lambd = 0.5);  ///< a module
};
/// x - tanh(x). As torch.nn.Tanhshrink.
class Tanhshrink : public ModuleHolder<FunctionModule> {
 public:
  using ModuleHolder::ModuleHolder;
  Tanhshrink();  ///< a module
};
/// x / (1 + |x|). As torch.nn.Softsign.
class Softsign : public ModuleHolder<FunctionModule> {
 public:
  using ModuleHolder::ModuleHolder;
  Softsign();  ///< a module
};
/// Log(sigmoid(x)). As torch.nn.LogSigmoid.
class LogSigmoid : public ModuleHolder<FunctionModule> {
 public:
  using ModuleHolder::ModuleHolder;
  LogSigmoid();  ///< a module
};
/// x where x > threshold, else `value`. As torch.nn.Threshold.
class Threshold : public ModuleHolder<FunctionModule> {
 public:
  using ModuleHolder::ModuleHolder;
  Threshold(double threshold, double value);  ///< a module
};
/// functional::glu() along the axis `dim`. As torch.nn.GLU.
class GLU : public ModuleHolder<FunctionModule> {
 public:
  using ModuleHolder::ModuleHolder;
  explicit GLU(std::int64_t dim = -1);  ///< a module
};
/// Softmax(-x) along the axis `dim`. As torch.nn.Softmin.
class Softmin : public ModuleHolder<FunctionModule> {
 public:
  using ModuleHolder::ModuleHolder;
  explicit Softmin(std::int64_t dim);  ///< a module
};

/// Options of PReLU. As the arguments of torch.nn.PReLU.
struct PReLUArguments {
  std::int64_t num_parameters = 1;  ///< 1, or the number of elements of axis 1
  double init = 0.25;               ///< the weights at the start
};
/// The module of PReLU.
class PReLUImpl : public Module {
 public:
  explicit PReLUImpl(const PReLUArguments& options);   ///< as PReLU
  Tensor forward(const Tensor& input) const override;  ///< functional::prelu()

  Variable weight;  ///< [num_parameters]
};
/// x if x > 0, else weight * x, where the weights are trained. As torch.nn.PReLU; layers::PReLU has
/// a weight per element of an example.
class PReLU : public ModuleHolder<PReLUImpl> {
 public:
  using ModuleHolder::ModuleHolder;
  /// A module. Throws InvalidArgumentError for a number of weights below 1.
  explicit PReLU(const PReLUArguments& options = {});
};
/// The module of RReLU.
class RReLUImpl : public Module {
 public:
  RReLUImpl(double lower, double upper);               ///< as RReLU
  Tensor forward(const Tensor& input) const override;  ///< functional::rrelu()

 private:
  double lower_, upper_;
};
/// x if x > 0, else a * x: in training mode with a random `a` per element, outside with the mean of
/// the limits. As torch.nn.RReLU.
class RReLU : public ModuleHolder<RReLUImpl> {
 public:
  using ModuleHolder::ModuleHolder;
  /// A module. Throws InvalidArgumentError for a lower limit above the upper one.
  explicit RReLU(double lower = 1.0 / 8, double upper = 1.0 / 3);
};
/// The module of AlphaDropout.
class AlphaDropoutImpl : public Module {
 public:
  explicit AlphaDropoutImpl(double p);                 ///< as AlphaDropout
  Tensor forward(const Tensor& input) const override;  ///< drops elements in training mode

 private:
  double p_;
};
/// Sets inputs to the lowest value of SELU with probability `p` in training, and scales and shifts
/// all so that mean and variance stay 0 and 1 (Klambauer et al., 2017). As torch.nn.AlphaDropout.
class AlphaDropout : public ModuleHolder<AlphaDropoutImpl> {
 public:
  using ModuleHolder::ModuleHolder;
  /// A module that drops this part of its inputs. Throws InvalidArgumentError for one outside [0,
  /// 1).
  explicit AlphaDropout(double p = 0.5);
};

}  // namespace tandem::nn
