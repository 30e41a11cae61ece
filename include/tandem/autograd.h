/// @file
/// Gradient functions of your own, and gradients as a function. As torch::autograd.
#pragma once

#include <functional>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "tandem/autodiff.h"
#include "tandem/tensor.h"

/// Gradient functions of your own, and gradients as a function. As torch::autograd.
namespace tandem::autograd {

/// Keeps for the backward part of a Function what the forward part has saved.
class Context {
 public:
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

}  // namespace tandem::autograd
