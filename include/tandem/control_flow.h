/// @file
/// Control flow that depends on the elements of tensors: branches and loops. As tf.cond and
/// tf.while_loop.
/// @code
/// const Tensor y = td::cond(td::greater(x, 0.0), [&] { return x * x; }, [&] { return -x; });
/// const auto powers = td::while_loop(
///     [](const auto& v) { return td::less(v[0], 10); },
///     [&](const auto& v) { return std::vector<Tensor>{v[0] + 1, v[1] * x}; }, {i, ones({})});
/// @endcode
///
/// Eagerly these are `if` and `while`: the callables run as host code and their operations are
/// recorded for gradients. While a graph is built (td::function, GraphScope), each callable is
/// traced once and becomes part of the graph, whichever branch is taken later. Its operations,
/// random numbers, assignments to variables and optimizer steps then happen in each run of it.
/// Tensors from the surrounding code are captured. Loops over the elements of a dataset are in
/// tandem/data.h.
///
/// Both are differentiable. The backward pass recomputes the operations of a branch or an
/// iteration, with the same random numbers; a loop keeps its loop variables of every iteration for
/// it. UnimplementedError: gradients that depend on a variable which the same branch or loop
/// assigns, and second derivatives.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <optional>
#include <type_traits>
#include <vector>

#include "tandem/function.h"
#include "tandem/tensor.h"

namespace tandem {

/// Options of while_loop(). As the arguments of tf.while_loop.
struct WhileOptions {
  /// Stops after this many iterations even if the condition still holds. Default: no limit.
  std::optional<std::int64_t> maximum_iterations{};
};

namespace detail {

// Throws InvalidArgumentError unless `predicate` is a bool scalar.
void check_predicate(const Tensor& predicate, const char* what);
std::vector<Tensor> trace_cond(const Tensor& predicate,
                               const std::function<std::vector<Tensor>()>& then_fn,
                               const std::function<std::vector<Tensor>()>& else_fn);

// Result type of a branch: a type made of tensors, as arguments of td::function. A type that
// converts to Tensor becomes Tensor.
template <class R>
using BranchResult = std::conditional_t<std::convertible_to<R, Tensor>, Tensor, R>;

}  // namespace detail

/// Returns the result of `then_fn` if `predicate` (a bool scalar) is true, else that of `else_fn`.
/// Both return the same type: a tensor, a vector, pair or tuple of tensors, or nothing. As tf.cond.
///
/// Throws InvalidArgumentError for another predicate and, while a graph is built, if the branches
/// return different numbers of tensors, dtypes or shapes.
template <class Then, class Else>
auto cond(const Tensor& predicate, Then&& then_fn, Else&& else_fn) {
  using Result = detail::BranchResult<std::invoke_result_t<Then&>>;
  static_assert(std::is_same_v<Result, detail::BranchResult<std::invoke_result_t<Else&>>>,
                "true_fn and false_fn arguments to cond must have the same number, type, and "
                "overall structure of return values");
  detail::check_predicate(predicate, "cond");
  if constexpr (std::is_void_v<Result>) {
    if (!detail::FunctionTraces::tracing()) return predicate.item<bool>() ? then_fn() : else_fn();
    const auto nothing = [](auto& branch) {
      branch();
      return std::vector<Tensor>();
    };
    detail::trace_cond(
        predicate, [&] { return nothing(then_fn); }, [&] { return nothing(else_fn); });
  } else {
    if (!detail::FunctionTraces::tracing())
      return predicate.item<bool>() ? Result(then_fn()) : Result(else_fn());
    using detail::visit_tensors;
    const auto no_key = [](const auto&) {};
    std::optional<Result> result;
    const auto tensors_of = [&](auto& branch) {
      result.emplace(branch());
      std::vector<Tensor> tensors;
      visit_tensors(
          *result, [&](Tensor& tensor) { tensors.push_back(tensor); }, no_key);
      return tensors;
    };
    std::vector<Tensor> outputs = detail::trace_cond(
        predicate, [&] { return tensors_of(then_fn); }, [&] { return tensors_of(else_fn); });
    std::size_t next = 0;
    visit_tensors(
        *result, [&](Tensor& tensor) { tensor = std::move(outputs[next++]); }, no_key);
    return std::move(*result);
  }
}

/// Calls `body` with the loop variables, and replaces them by its results, while `condition` (a
/// bool scalar computed from them) is true. Returns the last values. Loop variables keep their
/// number, dtypes and shapes. As tf.while_loop.
///
/// Throws InvalidArgumentError if there are no loop variables, if the condition is not a bool
/// scalar, and if the body returns other numbers of tensors, dtypes or shapes than it got.
std::vector<Tensor> while_loop(
    const std::function<Tensor(const std::vector<Tensor>& loop_vars)>& condition,
    const std::function<std::vector<Tensor>(const std::vector<Tensor>& loop_vars)>& body,
    std::vector<Tensor> loop_vars, const WhileOptions& options = {});

}  // namespace tandem
