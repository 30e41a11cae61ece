#include "ops/nn/activation.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <string>

#include "core/multiversion.h"
#include "core/parallel.h"
#include "core/status.h"
#include "op/dtype_switch.h"
#include "op/record.h"
#include "ops/math/activation_math.h"
#include "ops/math/chain_ops.h"
#include "ops/math/elementwise.h"
#include "ops/math/float_chunks.h"
#include "ops/math/in_float32.h"
#include "ops/onednn/onednn.h"
#include "ops/op_list.h"
#include "runtime/dispatch.h"
#include "tandem/activations.h"
#include "tandem/math.h"

namespace tandem {
namespace {

// The names of an activation; whether the forward operation saves its result instead of its input;
// and `curvature`, for second-order gradients: the derivative of dx / dy by the saved tensor, which
// is undefined if it is 0 everywhere.
template <class Formula>
struct Details;

template <>
struct Details<cpu::Relu> {
  static constexpr std::string_view kName = "Relu", kGradName = "ReluGrad";
  static constexpr bool kSavesOutput = true;
  static Tensor curvature(const Tensor&) { return {}; }
};
template <>
struct Details<cpu::Relu6> {
  static constexpr std::string_view kName = "Relu6", kGradName = "Relu6Grad";
  static constexpr bool kSavesOutput = true;
  static Tensor curvature(const Tensor&) { return {}; }
};
template <>
struct Details<cpu::LeakyRelu> {
  static constexpr std::string_view kName = "LeakyRelu", kGradName = "LeakyReluGrad";
  static constexpr bool kSavesOutput = false;
  static Tensor curvature(const Tensor&) { return {}; }
};
template <>
struct Details<cpu::Elu> {
  static constexpr std::string_view kName = "Elu", kGradName = "EluGrad";
  static constexpr bool kSavesOutput = true;
  static Tensor curvature(const Tensor& y) { return cast(less(y, 0.0), y.dtype()); }
};
template <>
struct Details<cpu::Selu> {
  static constexpr std::string_view kName = "Selu", kGradName = "SeluGrad";
  static constexpr bool kSavesOutput = true;
  static Tensor curvature(const Tensor& y) { return cast(less(y, 0.0), y.dtype()); }
};
template <>
struct Details<cpu::Softplus> {
  static constexpr std::string_view kName = "Softplus", kGradName = "SoftplusGrad";
  static constexpr bool kSavesOutput = true;
  static Tensor curvature(const Tensor& y) { return exp(negative(y)); }
};
template <>
struct Details<cpu::Swish> {
  static constexpr std::string_view kName = "Swish", kGradName = "SwishGrad";
  static constexpr bool kSavesOutput = false;
  static Tensor curvature(const Tensor& x) {
    const Tensor s = sigmoid(x);
    return s * (1.0 - s) * (x * (1.0 - 2.0 * s) + 2.0);
  }
};
template <>
struct Details<cpu::Gelu> {
  static constexpr std::string_view kName = "Gelu", kGradName = "GeluGrad";
  static constexpr bool kSavesOutput = false;
  static Tensor curvature(const Tensor& x) {
    const Tensor x2 = square(x);
    return exp(x2 * -0.5) * (2.0 - x2) * cpu::Gelu::kDensity;
  }
};
template <>
struct Details<cpu::GeluTanh> {
  static constexpr std::string_view kName = "GeluTanh", kGradName = "GeluTanhGrad";
  static constexpr bool kSavesOutput = false;
  static Tensor curvature(const Tensor& x) {
    constexpr double kScale = cpu::GeluTanh::kScale, kCubic = cpu::GeluTanh::kCubic;
    const Tensor x2 = square(x);
    const Tensor t = tanh(x * (1.0 + x2 * kCubic) * kScale);
    const Tensor s = 1.0 - square(t);
    const Tensor inner = (1.0 + x2 * (3 * kCubic)) * kScale;
    return s * (inner + x * (x * (3 * kCubic * kScale) - t * square(inner)));
  }
};

// Results may overwrite the first operand (kInPlace), element by element (GCC ivdep).

template <class A, class T>
TANDEM_INLINED void value_loop(const T* x, T* y, std::int64_t count, Compute<T> alpha) {
  write_elements(y, count, [=](std::int64_t i) { return A::value(element_of(x, i), alpha); });
}

template <class A, class T>
TANDEM_INLINED void gradient_loop(const T* dy, const T* saved, T* dx, std::int64_t count,
                                  Compute<T> alpha) {
  write_elements(dx, count, [=](std::int64_t i) {
    return A::gradient(element_of(dy, i), element_of(saved, i), alpha);
  });
}

// A bfloat16 ReLU is computed on bits (ReluBits).
template <class A, class T>
inline constexpr bool is_on_bits = std::is_same_v<A, cpu::Relu>&& std::is_same_v<T, BFloat16>;
template <class T>
const std::uint16_t* bits_of(const T* x) {
  return reinterpret_cast<const std::uint16_t*>(x);
}
template <class T>
std::uint16_t* bits_of(T* x) {
  return reinterpret_cast<std::uint16_t*>(x);
}

template <class A, class T>
void value_range(const T* x, T* y, std::int64_t count, Compute<T> alpha) {
  if constexpr (is_on_bits<A, T>)
    run_loop<T, value_loop<nn::ReluBits, std::uint16_t>>(bits_of(x), bits_of(y), count,
                                                         std::uint16_t{0});
  else
    run_loop<T, value_loop<A, T>>(x, y, count, alpha);
}

template <class A, class T>
void gradient_range(const T* dy, const T* saved, T* dx, std::int64_t count, Compute<T> alpha) {
  if constexpr (is_on_bits<A, T>)
    run_loop<T, gradient_loop<nn::ReluBits, std::uint16_t>>(bits_of(dy), bits_of(saved),
                                                            bits_of(dx), count, std::uint16_t{0});
  else
    run_loop<T, gradient_loop<A, T>>(dy, saved, dx, count, alpha);
}

void infer_activation(InferContext& c) {
  check_dtype(c.op().name, kFloating, c.dtype(0));
  c.add_output(c.dtype(0), c.shape(0));
}

void infer_activation_gradient(InferContext& c) {
  check_dtype(c.op().name, kFloating, c.dtype(0));
  if (c.dtype(0) != c.dtype(1) || !dim::may_equal(c.shape(0), c.shape(1)))
    fail<InvalidArgumentError>("[{}] expected tensors of one dtype and shape, got {} {} and {} {}",
                               c.op().name, name_of(c.dtype(0)), c.shape(0).to_string(),
                               name_of(c.dtype(1)), c.shape(1).to_string());
  c.add_output(c.dtype(0), c.shape(0));
}

template <class A>
struct ActivationOp {
  static void kernel(KernelContext& c) {
    const double alpha = c.attrs<ActivationAttrs>().alpha;
    const InFloat32 in_float32(c);
    switch_floating(c.inputs[0].dtype, [&]<class T>(TypeTag<T>) {
      const T* x = c.inputs[0].as<const T>();
      T* y = c.outputs[0].as<T>();
      parallel_for(
          c.outputs[0].size(), kElementwiseGrain, [&](std::int64_t begin, std::int64_t end) {
            value_range<A>(x + begin, y + begin, end - begin, static_cast<Compute<T>>(alpha));
          });
    });
  }

  static void gradient_kernel(KernelContext& c) {
    const double alpha = c.attrs<ActivationAttrs>().alpha;
    const InFloat32 in_float32(c);
    switch_floating(c.inputs[0].dtype, [&]<class T>(TypeTag<T>) {
      const T *dy = c.inputs[0].as<const T>(), *saved = c.inputs[1].as<const T>();
      T* dx = c.outputs[0].as<T>();
      parallel_for(c.outputs[0].size(), kElementwiseGrain,
                   [&](std::int64_t begin, std::int64_t end) {
                     gradient_range<A>(dy + begin, saved + begin, dx + begin, end - begin,
                                       static_cast<Compute<T>>(alpha));
                   });
    });
  }

  static void gradient(GradContext& c) {
    const Tensor saved = Details<A>::kSavesOutput ? c.output(0) : c.input(0);
    c.set_grad(0, run_in_place(kGrad, c.take_grad(), {&saved}, c.attrs<ActivationAttrs>()));
  }

  static void second_gradient(GradContext& c) {
    const auto& attrs = c.attrs<ActivationAttrs>();
    const Tensor& tensor = c.input(1);
    if (c.needs_grad(0)) c.set_grad(0, run(kGrad, {&c.grad(), &tensor}, attrs));
    if (!c.needs_grad(1)) return;
    const Tensor curvature = Details<A>::curvature(tensor);
    if (curvature.defined()) c.set_grad(1, c.grad() * c.input(0) * curvature);
  }

  static Tensor apply(const Tensor& x, double alpha = 0.0) {
    return run(kForward, {&x}, ActivationAttrs{.alpha = alpha});
  }

  static const OpDef kForward;
  static const OpDef kGrad;
};

template <class A>
const OpDef ActivationOp<A>::kForward = {
    .name = Details<A>::kName,
    .attrs = &attrs_type<ActivationAttrs>,
    .infer = infer_activation,
    .gradient = &ActivationOp<A>::gradient,
    .cpu_kernel = &ActivationOp<A>::kernel,
    .traits = kElementwise | kInPlace,
    .autocast = std::is_same_v<A, cpu::Softplus> ? kAutocastFloat32OnGpus : AutocastRules(),
    .chain = {kChainOp<A>, ChainForm::kActivation},
    .saved_inputs = Details<A>::kSavesOutput ? 0u : 1u,
    .saved_outputs = Details<A>::kSavesOutput ? 1u : 0u};
template <class A>
const OpDef ActivationOp<A>::kGrad = {.name = Details<A>::kGradName,
                                      .attrs = &attrs_type<ActivationAttrs>,
                                      .infer = infer_activation_gradient,
                                      .gradient = &ActivationOp<A>::second_gradient,
                                      .cpu_kernel = &ActivationOp<A>::gradient_kernel,
                                      .traits = kElementwise | kInPlace,
                                      .chain = {kChainGradOp<A>, ChainForm::kActivation},
                                      .saved_inputs = 0b11};

}  // namespace

OpList activation_ops() {
  return list_of<ActivationOp<cpu::Relu>::kForward, ActivationOp<cpu::Relu>::kGrad,
                 ActivationOp<cpu::Relu6>::kForward, ActivationOp<cpu::Relu6>::kGrad,
                 ActivationOp<cpu::LeakyRelu>::kForward, ActivationOp<cpu::LeakyRelu>::kGrad,
                 ActivationOp<cpu::Elu>::kForward, ActivationOp<cpu::Elu>::kGrad,
                 ActivationOp<cpu::Selu>::kForward, ActivationOp<cpu::Selu>::kGrad,
                 ActivationOp<cpu::Softplus>::kForward, ActivationOp<cpu::Softplus>::kGrad,
                 ActivationOp<cpu::Swish>::kForward, ActivationOp<cpu::Swish>::kGrad,
                 ActivationOp<cpu::Gelu>::kForward, ActivationOp<cpu::Gelu>::kGrad,
                 ActivationOp<cpu::GeluTanh>::kForward, ActivationOp<cpu::GeluTanh>::kGrad>();
}

namespace nn {
namespace {

struct ActivationName {
  std::string_view name;
  Activation activation;
};
constexpr std::array<ActivationName, 30> activation_names() {
  using enum Activation;
  return {{{"linear", kLinear},
           {"relu", kRelu},
           {"relu6", kRelu6},
           {"leaky_relu", kLeakyRelu},
           {"elu", kElu},
           {"selu", kSelu},
           {"gelu", kGelu},
           {"swish", kSwish},
           {"silu", kSwish},
           {"tanh", kTanh},
           {"softplus", kSoftplus},
           {"sigmoid", kSigmoid},
           {"softmax", kSoftmax},
           {"celu", kCelu},
           {"exponential", kExponential},
           {"glu", kGlu},
           {"hard_shrink", kHardShrink},
           {"hard_sigmoid", kHardSigmoid},
           {"hard_swish", kHardSwish},
           {"hard_silu", kHardSwish},
           {"hard_tanh", kHardTanh},
           {"log_sigmoid", kLogSigmoid},
           {"log_softmax", kLogSoftmax},
           {"mish", kMish},
           {"soft_shrink", kSoftShrink},
           {"softsign", kSoftsign},
           {"sparse_plus", kSparsePlus},
           {"sparse_sigmoid", kSparseSigmoid},
           {"squareplus", kSquareplus},
           {"tanh_shrink", kTanhShrink}}};
}

}  // namespace

Tensor relu(const Tensor& x) { return ActivationOp<cpu::Relu>::apply(x); }
Tensor relu6(const Tensor& x) { return ActivationOp<cpu::Relu6>::apply(x); }
Tensor leaky_relu(const Tensor& x, double alpha) {
  return ActivationOp<cpu::LeakyRelu>::apply(x, alpha);
}
Tensor elu(const Tensor& x, double alpha) {
  if (!(alpha >= 0.0))
    fail<InvalidArgumentError>("[Elu] expected alpha of 0 or more, got {}", alpha);
  return ActivationOp<cpu::Elu>::apply(x, alpha);
}
Tensor selu(const Tensor& x) { return ActivationOp<cpu::Selu>::apply(x); }
Tensor gelu(const Tensor& x, bool approximate) {
  return approximate ? ActivationOp<cpu::GeluTanh>::apply(x) : ActivationOp<cpu::Gelu>::apply(x);
}
Tensor swish(const Tensor& x) { return ActivationOp<cpu::Swish>::apply(x); }
Tensor softplus(const Tensor& x) { return ActivationOp<cpu::Softplus>::apply(x); }

Activation activation_from_name(std::string_view name) {
  std::string lower(name);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  if (lower.empty()) return Activation::kLinear;
  std::string known;
  for (const ActivationName& entry : activation_names()) {
    if (entry.name == lower) return entry.activation;
    known += known.empty() ? "" : ", ";
    known += entry.name;
  }
  fail<InvalidArgumentError>("[activation] expected one of {}, got '{}'", known, name);
}

Tensor activate(const Tensor& x, Activation activation) {
  using enum Activation;
  switch (activation) {
    case kLinear: return x;
    case kRelu: return relu(x);
    case kRelu6: return relu6(x);
    case kLeakyRelu: return leaky_relu(x);
    case kElu: return elu(x);
    case kSelu: return selu(x);
    case kGelu: return gelu(x);
    case kSwish: return swish(x);
    case kSoftplus: return softplus(x);
    case kSigmoid: return sigmoid(x);
    case kTanh: return tanh(x);
    case kSoftmax: return softmax(x);
    case kCelu: return celu(x);
    case kExponential: return exp(x);
    case kGlu: return glu(x);
    case kHardShrink: return hard_shrink(x);
    case kHardSigmoid: return hard_sigmoid(x);
    case kHardSwish: return hard_swish(x);
    case kHardTanh: return hard_tanh(x);
    case kLogSigmoid: return log_sigmoid(x);
    case kLogSoftmax: return log_softmax(x);
    case kMish: return mish(x);
    case kSoftShrink: return soft_shrink(x);
    case kSoftsign: return softsign(x);
    case kSparsePlus: return sparse_plus(x);
    case kSparseSigmoid: return sparse_sigmoid(x);
    case kSquareplus: return squareplus(x);
    case kTanhShrink: return tanh_shrink(x);
  }
  fail<InternalError>("not an activation: {}", static_cast<int>(activation));
}

Tensor fused_activation_gradient(Activation activation, Tensor dy, const Tensor& y) {
  using enum Activation;
  switch (activation) {
    case kLinear: return dy;
    case kRelu:
      return run_in_place(ActivationOp<cpu::Relu>::kGrad, std::move(dy), {&y}, ActivationAttrs{});
    case kRelu6:
      return run_in_place(ActivationOp<cpu::Relu6>::kGrad, std::move(dy), {&y}, ActivationAttrs{});
    case kElu:
      return run_in_place(ActivationOp<cpu::Elu>::kGrad, std::move(dy), {&y},
                          ActivationAttrs{.alpha = 1.0});
    case kSigmoid: return dy * y * (1.0 - y);
    case kTanh: return dy * (1.0 - square(y));
    default: fail<InternalError>("not a fused activation: {}", static_cast<int>(activation));
  }
}

}  // namespace nn
}  // namespace tandem
