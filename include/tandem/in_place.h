/// @file
/// The functions of PyTorch that write in place, which do not compile. Included by tandem/tensor.h.
#pragma once

#include <initializer_list>
#include <tuple>

#include "tandem/slice.h"

namespace tandem {

class Tensor;

namespace detail {

// Always false; for a static_assert that fails when its template is used.
template <class>
inline constexpr bool kNever = false;

/// The part of Tensor that holds them: they would write for every view of the memory, too.
class InPlaceFunctions {
 public:
  /// @{
  /// Does not compile: the message says what to write.
  // clang-format off
  template <class... T> void abs_(const T&...) const { in_place<std::tuple<T...>>(); }
  template <class... T> void add_(const T&...) const { in_place<std::tuple<T...>>(); }
  template <class... T> void bernoulli_(const T&...) const { in_place<std::tuple<T...>>(); }
  template <class... T> void ceil_(const T&...) const { in_place<std::tuple<T...>>(); }
  template <class... T> void clamp_(const T&...) const { in_place<std::tuple<T...>>(); }
  template <class... T> void clamp_max_(const T&...) const { in_place<std::tuple<T...>>(); }
  template <class... T> void clamp_min_(const T&...) const { in_place<std::tuple<T...>>(); }
  template <class... T> void copy_(const T&...) const { in_place<std::tuple<T...>>(); }
  template <class... T> void cos_(const T&...) const { in_place<std::tuple<T...>>(); }
  template <class... T> void detach_(const T&...) const { in_place<std::tuple<T...>>(); }
  template <class... T> void div_(const T&...) const { in_place<std::tuple<T...>>(); }
  template <class... T> void exp_(const T&...) const { in_place<std::tuple<T...>>(); }
  template <class... T> void exponential_(const T&...) const { in_place<std::tuple<T...>>(); }
  template <class... T> void fill_(const T&...) const { in_place<std::tuple<T...>>(); }
  template <class... T> void floor_(const T&...) const { in_place<std::tuple<T...>>(); }
  template <class... T> void log_(const T&...) const { in_place<std::tuple<T...>>(); }
  template <class... T> void log1p_(const T&...) const { in_place<std::tuple<T...>>(); }
  template <class... T> void masked_fill_(const T&...) const { in_place<std::tuple<T...>>(); }
  template <class... T> void mul_(const T&...) const { in_place<std::tuple<T...>>(); }
  template <class... T> void neg_(const T&...) const { in_place<std::tuple<T...>>(); }
  template <class... T> void normal_(const T&...) const { in_place<std::tuple<T...>>(); }
  template <class... T> void pow_(const T&...) const { in_place<std::tuple<T...>>(); }
  template <class... T> void random_(const T&...) const { in_place<std::tuple<T...>>(); }
  template <class... T> void relu_(const T&...) const { in_place<std::tuple<T...>>(); }
  template <class... T> void round_(const T&...) const { in_place<std::tuple<T...>>(); }
  template <class... T> void rsqrt_(const T&...) const { in_place<std::tuple<T...>>(); }
  template <class... T> void sigmoid_(const T&...) const { in_place<std::tuple<T...>>(); }
  template <class... T> void sign_(const T&...) const { in_place<std::tuple<T...>>(); }
  template <class... T> void sin_(const T&...) const { in_place<std::tuple<T...>>(); }
  template <class... T> void softmax_(const T&...) const { in_place<std::tuple<T...>>(); }
  template <class... T> void sqrt_(const T&...) const { in_place<std::tuple<T...>>(); }
  template <class... T> void squeeze_(const T&...) const { in_place<std::tuple<T...>>(); }
  template <class... T> void sub_(const T&...) const { in_place<std::tuple<T...>>(); }
  template <class... T> void t_(const T&...) const { in_place<std::tuple<T...>>(); }
  template <class... T> void tanh_(const T&...) const { in_place<std::tuple<T...>>(); }
  template <class... T> void transpose_(const T&...) const { in_place<std::tuple<T...>>(); }
  template <class... T> void uniform_(const T&...) const { in_place<std::tuple<T...>>(); }
  template <class... T> void unsqueeze_(const T&...) const { in_place<std::tuple<T...>>(); }
  // clang-format on
  template <class T>
  void index_put_(std::initializer_list<AxisIndex>, const T&) const {
    in_place<T>();
  }
  template <class T>
  void index_put_(const Tensor&, const T&) const {
    in_place<T>();
  }
  /// @}
  /// @{
  /// Does not compile: `x[0] += y` would change a temporary alone.
  template <class T>
  void operator+=(const T&) && {
    part<T>();
  }
  template <class T>
  void operator-=(const T&) && {
    part<T>();
  }
  template <class T>
  void operator*=(const T&) && {
    part<T>();
  }
  template <class T>
  void operator/=(const T&) && {
    part<T>();
  }
  /// @}

 protected:
  template <class T>
  static void of_temporary() {
    static_assert(kNever<T>,
                  "the elements are gone when the temporary tensor ends: keep the tensor in a "
                  "variable, const Tensor y = f(x), and call this on the variable; or copy the "
                  "elements by to_vector<T>() or item<T>()");
  }
  template <class T>
  static void part() {
    static_assert(kNever<T>,
                  "a part of a tensor cannot be assigned, because operations never change their "
                  "inputs: make a new tensor with where(), concat(), stack() or pad()");
  }
  template <class T>
  static void in_place() {
    static_assert(
        kNever<T>,
        "operations never change their inputs: write x = x + y or x += y, which makes x a handle "
        "to the result, x = zeros_like(x), x = where(mask, y, x), or Variable::assign()");
  }
};

}  // namespace detail
}  // namespace tandem
