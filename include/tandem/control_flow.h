// Control flow on the elements of tensors: branches and loops.
//
//   const Tensor y = td::cond(td::greater(x, 0.0), [&] { return x * x; }, [&] { return -x; });
//   const auto powers = td::while_loop(
//       [](const auto& v) { return td::less(v[0], 10); },
//       [&](const auto& v) { return std::vector<Tensor>{v[0] + 1, v[1] * x}; }, {i, ones({})});
//
// Outside of traced functions and graphs these are `if` and `while`: the callables run as host code
// does, and what they do is recorded for gradients. While a graph is built (td::function,
// GraphScope), each callable is traced once, whichever way the program goes later; its operations,
// draws of random numbers, assignments to variables and optimizer steps act in each run of it. What
// it uses from around it is captured. Gradients go through both, except where the error below says
// so. A loop over the elements of a dataset is in tandem/data.h. After TensorFlow's tf.cond and
// tf.while_loop.
//
// Going back through a branch or an iteration computes its operations again (with the same draws);
// a loop that is gone back through keeps its loop variables of every iteration. UnimplementedError:
// gradients that depend on a variable which the same branch or loop writes, and gradients of these.
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

struct WhileOptions {
  // Stops after so many iterations even where the condition still holds.
  std::optional<std::int64_t> maximum_iterations{};
};

namespace detail {

// Throws InvalidArgumentError unless `predicate` is a scalar of bool.
void check_predicate(const Tensor& predicate, const char* what);
std::vector<Tensor> trace_cond(const Tensor& predicate,
                               const std::function<std::vector<Tensor>()>& then_fn,
                               const std::function<std::vector<Tensor>()>& else_fn);

// What a branch returns: anything made of tensors, as td::function's arguments are; what converts
// to a tensor is one.
template <class R>
using BranchResult = std::conditional_t<std::convertible_to<R, Tensor>, Tensor, R>;

}  // namespace detail

// What `then_fn` returns where `predicate` (a scalar of bool) holds, else what `else_fn` returns:
// a tensor, a vector, pair or tuple of tensors, or nothing. Both return the same.
//
// Throws InvalidArgumentError where the predicate is not such a scalar, and while a graph is built
// where the branches return different numbers of tensors, dtypes or shapes.
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

// Calls `body` with the loop variables, which it returns anew, as long as `condition` of them (a
// scalar of bool) holds, and returns the last ones. Loop variables keep their number, dtypes and
// shapes.
//
// Throws InvalidArgumentError for no loop variables, a condition that is not such a scalar, and
// where the body returns other numbers of tensors, dtypes or shapes than it was given.
std::vector<Tensor> while_loop(
    const std::function<Tensor(const std::vector<Tensor>& loop_vars)>& condition,
    const std::function<std::vector<Tensor>(const std::vector<Tensor>& loop_vars)>& body,
    std::vector<Tensor> loop_vars, const WhileOptions& options = {});

}  // namespace tandem
