/// @file
/// Control flow that depends on the elements of tensors: branches and loops. As tf.cond and
/// tf.while_loop.
/// @code
/// const Tensor y = td::cond(td::greater(x, 0.0), [&] { return x * x; }, [&] { return -x; });
/// const auto powers = td::while_loop(
///     [](Tensor i, Tensor) { return i < 10; },
///     [&](Tensor i, Tensor power) { return std::vector<Tensor>{i + 1, power * x}; },
///     {i, ones({})});
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

#include <array>
#include <concepts>
#include <cstdint>
#include <functional>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
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

// Result type of a branch: a type made of tensors, as arguments of td::function. Another type that
// converts to Tensor becomes Tensor.
template <class R>
using BranchResult = std::conditional_t<
    std::convertible_to<R, Tensor> && !kConsistsOfTensors<std::remove_cvref_t<R>>, Tensor, R>;

using LoopCondition = std::function<Tensor(const std::vector<Tensor>&)>;
using LoopBody = std::function<std::vector<Tensor>(const std::vector<Tensor>&)>;

// Throws InvalidArgumentError "[while_loop] the WHAT has EXPECTED tensors, there are GOT loop
// variables" if they differ.
void check_loop_vars(const char* what, std::size_t expected, std::size_t got);

// A condition or body of while_loop(), by value or by reference.
template <class F>
inline constexpr bool kLoopFunction = std::is_invocable_v<F&, const std::vector<Tensor>&> ||
                                      number_of_tensors<std::remove_reference_t<F>>() > 0;

// Whether both are what while_loop() takes without a template.
template <class Condition, class Body>
concept PlainLoop =
    std::convertible_to<Condition, LoopCondition> && std::convertible_to<Body, LoopBody>;

template <class F>
decltype(auto) call_loop_function(const char* what, F& fn, const std::vector<Tensor>& loop_vars) {
  if constexpr (std::invocable<F&, const std::vector<Tensor>&>) {
    return fn(loop_vars);
  } else {
    constexpr std::size_t kCount = number_of_tensors<F>();
    check_loop_vars(what, kCount, loop_vars.size());
    return call_with(fn, loop_vars.data(), std::make_index_sequence<kCount>());
  }
}

template <class R>
inline constexpr bool kArrayOfTensors = false;
template <std::size_t kSize>
inline constexpr bool kArrayOfTensors<std::array<Tensor, kSize>> = true;

template <class R>
concept LoopResult = std::convertible_to<R, std::vector<Tensor>> ||
    std::convertible_to<R, Tensor> || kTupleOfTensors<R> || kArrayOfTensors<R>;

template <LoopResult R>
std::vector<Tensor> loop_vars_of(R result) {
  if constexpr (std::convertible_to<R, std::vector<Tensor>>)
    return result;
  else if constexpr (std::convertible_to<R, Tensor>)
    return {static_cast<Tensor>(result)};
  else
    return std::apply(
        [](const auto&... tensor) { return std::vector<Tensor>{static_cast<Tensor>(tensor)...}; },
        result);
}

template <class Tuple, std::size_t... I>
Tuple tuple_of(const std::vector<Tensor>& tensors, std::index_sequence<I...>) {
  return Tuple(tensors[I]...);
}

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

/// @{
/// Calls `body` with the loop variables, and replaces them by its results, while `condition` (a
/// bool scalar computed from them) is true. Returns the last values. Loop variables keep their
/// number, dtypes and shapes. As tf.while_loop.
///
/// Both callables take one Tensor for each loop variable, up to 8, or a vector of all. The body
/// returns a vector, an array, a tuple or a pair of tensors, or one Tensor. After a body that
/// returns a tuple or a pair, the result is a tuple or a pair, else a vector:
/// @code
/// const auto [n, power] = td::while_loop(
///     [](Tensor i, Tensor) { return i < 10; },
///     [&](Tensor i, Tensor power) { return std::pair{i + 1, power * x}; }, {i, ones({})});
/// @endcode
///
/// The loop variables may also be arguments of their own: `while_loop(condition, body, i, power)`;
/// then the callables may be generic lambdas.
///
/// Throws InvalidArgumentError if there are no loop variables, if the condition is not a bool
/// scalar, and if the body returns other numbers of tensors, dtypes or shapes than it got.
std::vector<Tensor> while_loop(
    const std::function<Tensor(const std::vector<Tensor>& loop_vars)>& condition,
    const std::function<std::vector<Tensor>(const std::vector<Tensor>& loop_vars)>& body,
    std::vector<Tensor> loop_vars, const WhileOptions& options = {});
template <class Condition, class Body>
requires(!detail::PlainLoop<Condition, Body>) auto while_loop(Condition&& condition, Body&& body,
                                                              std::vector<Tensor> loop_vars,
                                                              const WhileOptions& options = {}) {
  static_assert(
      detail::kLoopFunction<Condition> && detail::kLoopFunction<Body>,
      "the condition and the body of while_loop() take one Tensor for each loop variable, "
      "or a const std::vector<Tensor>&");
  if constexpr (detail::kLoopFunction<Condition> && detail::kLoopFunction<Body>) {
    using Tensors = std::vector<Tensor>;
    using Holds = decltype(detail::call_loop_function("condition", condition, loop_vars));
    using Next = std::remove_cvref_t<decltype(detail::call_loop_function("body", body, loop_vars))>;
    static_assert(std::convertible_to<Holds, Tensor>,
                  "the condition of while_loop() returns a Tensor: a bool scalar");
    static_assert(detail::LoopResult<Next>,
                  "the body of while_loop() returns the next loop variables: a vector, an array, a "
                  "tuple or a pair of tensors, or one Tensor");
    if constexpr (detail::kTupleOfTensors<Next>)
      detail::check_loop_vars("result of the body", std::tuple_size_v<Next>, loop_vars.size());
    const detail::LoopCondition holds = [&](const Tensors& variables) -> Tensor {
      return detail::call_loop_function("condition", condition, variables);
    };
    const detail::LoopBody next = [&](const Tensors& variables) {
      return detail::loop_vars_of(detail::call_loop_function("body", body, variables));
    };
    Tensors last = while_loop(holds, next, std::move(loop_vars), options);
    if constexpr (detail::kTupleOfTensors<Next>)
      return detail::tuple_of<typename detail::TensorTuple<Next>::type>(
          last, std::make_index_sequence<std::tuple_size_v<Next>>());
    else
      return last;
  }
}
template <class Condition, class Body, std::convertible_to<Tensor>... Variables>
requires(sizeof...(Variables) > 0) auto while_loop(Condition&& condition, Body&& body,
                                                   const Variables&... loop_vars) {
  const auto with_tensors = [](auto& callable) {
    return [&callable](const std::conditional_t<true, Tensor, Variables>&... tensors) {
      return callable(tensors...);
    };
  };
  return while_loop(with_tensors(condition), with_tensors(body), std::vector<Tensor>{loop_vars...});
}
/// @}

}  // namespace tandem
