/// @file
/// Gradient functions of your own, and gradients as a function. As torch::autograd and
/// tf.custom_gradient.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "tandem/autodiff.h"
#include "tandem/tensor.h"

/// Gradient functions of your own, and gradients as a function. As torch::autograd.
namespace tandem::autograd {

/// A value in Context::saved_data: a number, a bool, a text or a list of integers. Tensors are for
/// save_for_backward(). As c10::IValue.
class SavedValue {
 public:
  SavedValue() = default;
  /// @{
  /// Holds this value.
  template <std::integral Integer>
  SavedValue(Integer value) : integer_(value) {}  // NOLINT: stands for it
  template <std::floating_point Number>
  SavedValue(Number value) : number_(value) {}                              // NOLINT
  SavedValue(std::string value) : text_(std::move(value)) {}                // NOLINT
  SavedValue(const char* value) : text_(value) {}                           // NOLINT
  SavedValue(std::vector<std::int64_t> value) : list_(std::move(value)) {}  // NOLINT
  /// @}
  /// Does not compile.
  template <class T>
  requires std::convertible_to<T, Tensor> SavedValue(const T&) {  // NOLINT: refused
    static_assert(!std::same_as<T, T>, "write context->save_for_backward({x}) for tensors");
  }
  /// @{
  /// The value. Throws InvalidArgumentError if another kind is held.
  double toDouble() const;
  std::int64_t toInt() const;
  bool toBool() const { return toInt() != 0; }
  const std::string& toStringRef() const;
  const std::vector<std::int64_t>& toIntVector() const;
  /// @}

  /// For Tandem's own code: 'i', 'd', 's' or 'l', the kind that is held; 0 for none.
  char kind() const { return integer_ ? 'i' : number_ ? 'd' : text_ ? 's' : list_ ? 'l' : '\0'; }

 private:
  std::optional<std::int64_t> integer_;
  std::optional<double> number_;
  std::optional<std::string> text_;
  std::optional<std::vector<std::int64_t>> list_;
};

/// Keeps for the backward part of a Function what the forward part has saved.
class Context {
 public:
  /// Values other than tensors that are kept, by name: `context->saved_data["slope"] = 0.1`. As
  /// torch::autograd::AutogradContext::saved_data.
  std::map<std::string, SavedValue> saved_data;
  /// Keeps tensors: arguments, results or any others. Gradients of higher order flow through
  /// arguments and results alone.
  void save_for_backward(std::vector<Tensor> tensors) { saved_ = std::move(tensors); }
  /// The tensors that were kept, for the backward part.
  const std::vector<Tensor>& saved_tensors() const { return saved_; }
  const std::vector<Tensor>& get_saved_variables() const { return saved_; }  ///< as saved_tensors()
  /// Whether argument `index` (of the tensors) needs a gradient.
  bool needs_input_grad(std::size_t index) const {
    return index < needed_.size() && needed_[index];
  }

  /// For Tandem's own code.
  std::vector<Tensor>& saved() { return saved_; }
  std::vector<bool>& needed() { return needed_; }  ///< for Tandem's own code

 private:
  std::vector<Tensor> saved_;
  std::vector<bool> needed_;
};

}  // namespace tandem::autograd

namespace tandem::detail {

// The gradient of each input, of the gradients of the results; undefined for none. May be called
// from any thread, one call at a time.
using CustomBackward = std::function<std::vector<Tensor>(autograd::Context& context,
                                                         const std::vector<Tensor>& gradients)>;
// Notes in the context which inputs need gradients. Returns whether one does.
bool start_custom(autograd::Context& context, const std::vector<Tensor>& inputs);
// Records that `outputs` were computed from `inputs`, and returns them.
std::vector<Tensor> record_custom(autograd::Context& context, std::vector<Tensor> inputs,
                                  std::vector<Tensor> outputs, CustomBackward backward);
[[noreturn]] void fail_gradients(std::size_t expected, std::size_t given);
// Does the same for what a function of custom_gradient() has computed, from nothing that needs a
// gradient but `inputs`: throws UnimplementedError otherwise.
Tensor record_own_gradient(const std::vector<Tensor>& inputs, const Tensor& value,
                           CustomBackward backward);

// A gradient or several, as a list.
template <class Gradients>
std::vector<Tensor> list_of_gradients(Gradients gradients) {
  if constexpr (std::is_convertible_v<Gradients, Tensor>)
    return {static_cast<Tensor>(std::move(gradients))};
  else if constexpr (requires { std::vector<Tensor>(gradients); })
    return std::vector<Tensor>(gradients);
  else
    return std::apply([](const auto&... one) { return std::vector<Tensor>{one...}; }, gradients);
}

}  // namespace tandem::detail

namespace tandem::autograd {

/// Base class of functions with a gradient of their own:
/// @code
/// struct Cube : td::autograd::Function<Cube> {
///   static td::Tensor forward(td::autograd::Context* context, const td::Tensor& x) {
///     context->save_for_backward({x});
///     return x * x * x;
///   }
///   static std::vector<td::Tensor> backward(td::autograd::Context* context,
///                                           const std::vector<td::Tensor>& gradients) {
///     return {3 * context->saved_tensors()[0].square() * gradients[0]};
///   }
/// };
/// td::Tensor y = Cube::apply(x);
/// @endcode
/// The context may also be a reference, and backward() may return one tensor if there is one
/// argument. forward() runs without recording. backward() gets a gradient per result (zeros if
/// nothing depends on it) and returns one per argument; for an argument that is no tensor, and
/// where there is no gradient, an undefined tensor. Its operations are recorded for derivatives of
/// higher order if they are asked for. In a traced function both run while it is traced. Throws
/// InvalidArgumentError for another number of gradients. As torch::autograd::Function.
template <class Derived>
struct Function {
  /// Calls forward() with these arguments, of which some are tensors. Returns what it returns: a
  /// tensor or a vector of tensors.
  template <class... Args>
  static auto apply(const Args&... args) {
    using Result = decltype(run_forward(std::declval<Context&>(), args...));
    constexpr bool kSingle = std::is_same_v<Result, Tensor>;
    static_assert(kSingle || std::is_same_v<Result, std::vector<Tensor>>,
                  "forward() returns a Tensor or a std::vector<Tensor>");
    static constexpr bool kIsTensor[] = {std::is_convertible_v<const Args&, Tensor>..., false};
    std::vector<Tensor> inputs;
    const auto collect = [&](const auto& arg) {
      if constexpr (std::is_convertible_v<decltype(arg), Tensor>) inputs.push_back(arg);
    };
    (collect(args), ...);
    Context context;
    const bool tracked = detail::start_custom(context, inputs);
    std::vector<Tensor> results;
    {
      const NoGradScope untracked;
      if constexpr (kSingle)
        results.push_back(run_forward(context, args...));
      else
        results = run_forward(context, args...);
    }
    const auto backward = [](Context& kept, const std::vector<Tensor>& gradients) {
      const std::vector<Tensor> given = run_backward(kept, gradients);
      if (given.size() != sizeof...(Args)) detail::fail_gradients(sizeof...(Args), given.size());
      std::vector<Tensor> of_tensors;
      for (std::size_t i = 0; i < sizeof...(Args); ++i)
        if (kIsTensor[i]) of_tensors.push_back(given[i]);
      return of_tensors;
    };
    if (tracked)
      results = detail::record_custom(context, std::move(inputs), std::move(results), backward);
    if constexpr (kSingle)
      return std::move(results.front());
    else
      return results;
  }

 private:
  template <class... Args>
  static auto run_forward(Context& context, const Args&... args) {
    if constexpr (requires { Derived::forward(&context, args...); })
      return Derived::forward(&context, args...);
    else
      return Derived::forward(context, args...);
  }
  template <class Gradients>
  static std::vector<Tensor> run_backward(Context& context, const Gradients& gradients) {
    if constexpr (requires { std::vector<Tensor>(Derived::backward(&context, gradients)); })
      return Derived::backward(&context, gradients);
    else if constexpr (requires { Derived::backward(&context, gradients); })
      return {Derived::backward(&context, gradients)};
    else if constexpr (requires { std::vector<Tensor>(Derived::backward(context, gradients)); })
      return Derived::backward(context, gradients);
    else
      return {Derived::backward(context, gradients)};
  }
};

/// Options of grad(). As the arguments of torch.autograd.grad.
struct GradOptions {
  std::vector<Tensor> grad_outputs{};  ///< gradients of the outputs; default: ones, for scalars
  std::optional<bool> retain_graph{};  ///< keep the record; default: create_graph
  bool create_graph = false;           ///< record the pass, for derivatives of higher order
  bool allow_unused = false;           ///< an undefined gradient for an input that is not used
};
/// Returns the gradients of the sum of the outputs with respect to each input, and changes no
/// grad(). Throws InvalidArgumentError for an output that is no scalar without a gradient, and for
/// an input that the outputs do not depend on, unless allow_unused. As torch.autograd.grad.
std::vector<Tensor> grad(TensorList outputs, TensorList inputs, const GradOptions& options = {});
/// @{
/// The same with the options as arguments. As torch::autograd::grad; write
/// `{.grad_outputs = {g}}` for a list in braces that is the last argument.
inline std::vector<Tensor> grad(TensorList outputs, TensorList inputs,
                                std::vector<Tensor> grad_outputs, std::optional<bool> retain_graph,
                                bool create_graph = false, bool allow_unused = false) {
  return grad(outputs, inputs,
              GradOptions{.grad_outputs = std::move(grad_outputs),
                          .retain_graph = retain_graph,
                          .create_graph = create_graph,
                          .allow_unused = allow_unused});
}
template <std::same_as<std::vector<Tensor>> Gradients>
std::vector<Tensor> grad(TensorList outputs, TensorList inputs, const Gradients& grad_outputs) {
  return grad(outputs, inputs, GradOptions{.grad_outputs = grad_outputs});
}
/// @}

/// Options of gradcheck(). As the arguments of torch.autograd.gradcheck.
struct GradCheckOptions {
  double eps = 1e-6;            ///< step of the differences
  double atol = 1e-5;           ///< absolute tolerance
  double rtol = 1e-3;           ///< relative tolerance
  bool raise_exception = true;  ///< whether to throw; false: return false
};
/// @{
/// Compares the gradients of a function with central differences, for all elements of its result
/// and of its inputs. Returns true, or throws FailedPreconditionError that names the first
/// difference. Throws DTypeError for inputs that are not float64, where PyTorch warns. As
/// torch.autograd.gradcheck.
bool gradcheck(const std::function<Tensor(const std::vector<Tensor>& inputs)>& function,
               const std::vector<Tensor>& inputs, const GradCheckOptions& options = {});
template <std::invocable<const Tensor&> F>
bool gradcheck(const F& function, const Tensor& input, const GradCheckOptions& options = {}) {
  return gradcheck([&](const std::vector<Tensor>& x) -> Tensor { return function(x[0]); },
                   std::vector<Tensor>{input}, options);
}
/// @}

/// Functions of functions. As torch.autograd.functional.
namespace functional {
/// The derivatives of each element of function(x) with respect to each element of x, of shape
/// function(x).shape + x.shape: a backward pass per element of the result, whose shape must be
/// known. As torch.autograd.functional.jacobian.
Tensor jacobian(const std::function<Tensor(const Tensor& x)>& function, const Tensor& x);
/// The second derivatives of a function whose result is a scalar, of shape x.shape + x.shape.
/// Throws ShapeError for another result. As torch.autograd.functional.hessian.
Tensor hessian(const std::function<Tensor(const Tensor& x)>& function, const Tensor& x);
}  // namespace functional

}  // namespace tandem::autograd

namespace tandem {

/// A function with a gradient of its own: `f` takes tensors and returns its value and a function of
/// the gradient of the value, which returns the gradient of the argument, or a list with one per
/// argument.
/// @code
/// const auto log1pexp = td::custom_gradient([](const td::Tensor& x) {
///   const td::Tensor e = td::exp(x);
///   const auto gradient = [e](const td::Tensor& upstream) {
///     return upstream * (1.0 - 1.0 / (1.0 + e));
///   };
///   return std::make_pair(td::log(1.0 + e), gradient);
/// });
/// td::Tensor y = log1pexp(x);
/// @endcode
/// Derivatives of higher order are those of the gradient's operations. A call throws
/// UnimplementedError if `f` uses a trainable variable, or another tensor with a gradient, that is
/// not among its arguments (pass it as one), and the gradient throws InvalidArgumentError for
/// another number of gradients. As tf.custom_gradient.
template <class F>
auto custom_gradient(F f) {
  return [f = std::move(f)](const auto&... args) -> Tensor {
    const std::vector<Tensor> inputs = {static_cast<Tensor>(args)...};
    auto result = std::apply([&](const auto&... x) { return f(x...); },
                             std::tuple{static_cast<Tensor>(args)...});
    return detail::record_own_gradient(
        inputs, std::get<0>(result),
        [gradient = std::get<1>(std::move(result))](autograd::Context&,
                                                    const std::vector<Tensor>& upstream) mutable {
          return detail::list_of_gradients(gradient(upstream.front()));
        });
  };
}

}  // namespace tandem
