// The kernels of unary.cc on a GPU.
#include "ops/cuda/elementwise.cuh"
#include "ops/cuda/kernel_list.h"

namespace tandem::cuda {
namespace {

#define TANDEM_UNARY(Name, expression)      \
  struct Name {                             \
    template <class C>                      \
    __device__ auto operator()(C x) const { \
      return expression;                    \
    }                                       \
  }

TANDEM_UNARY(Square, wrapping(x, x, [](auto a, auto b) { return a * b; }));
TANDEM_UNARY(Sqrt, sqrt(x));
TANDEM_UNARY(Rsqrt, rsqrt(x));
TANDEM_UNARY(Reciprocal, C{1} / x);
TANDEM_UNARY(Exp, exp(x));
TANDEM_UNARY(Expm1, expm1(x));
TANDEM_UNARY(Log, log(x));
TANDEM_UNARY(Log1p, log1p(x));
TANDEM_UNARY(Sin, sin(x));
TANDEM_UNARY(Cos, cos(x));
TANDEM_UNARY(Tanh, tanh(x));
TANDEM_UNARY(Sigmoid, C{1} / (C{1} + exp(-x)));
TANDEM_UNARY(Erf, erf(x));
TANDEM_UNARY(Floor, floor(x));
TANDEM_UNARY(Ceil, ceil(x));
TANDEM_UNARY(Round, rint(x));  // halves to even
TANDEM_UNARY(IsNan, x != x);
TANDEM_UNARY(IsFinite, x - x == C{0});
TANDEM_UNARY(LogicalNot, !x);

#undef TANDEM_UNARY

// Floating types keep the sign in a bit, also of zeros and NaNs.
struct Neg {
  template <class C>
  __device__ C operator()(C x) const {
    if constexpr (std::is_floating_point_v<C>)
      return -x;
    else
      return wrapping(C{0}, x, [](auto a, auto b) { return a - b; });
  }
};
struct Abs {
  template <class C>
  __device__ C operator()(C x) const {
    if constexpr (std::is_floating_point_v<C>)
      return fabs(x);
    else if constexpr (std::is_unsigned_v<C>)
      return x;
    else
      return x < C{0} ? Neg()(x) : x;
  }
};
struct Sign {
  template <class C>
  __device__ C operator()(C x) const {
    if constexpr (std::is_unsigned_v<C>)
      return x > C{0};
    else
      return x != x ? x : static_cast<C>((x > C{0}) - (x < C{0}));
  }
};

template <class Op, class Result = void>
void floating(KernelContext& c) {
  switch_floating(c.inputs[0].dtype, [&]<class T>(Type<T>) { unary_on<Op, T, Result>(c); });
}
template <class Op>
void numeric(KernelContext& c) {
  switch_numeric(c.inputs[0].dtype, [&]<class T>(Type<T>) { unary_on<Op, T>(c); });
}
void logical_not(KernelContext& c) { unary_on<LogicalNot, bool>(c); }

}  // namespace

KernelList unary_kernels() {
  static constexpr CudaKernel kernels[] = {{"Neg", on_gpu<numeric<Neg>>},
                                           {"Abs", on_gpu<numeric<Abs>>},
                                           {"Sign", on_gpu<numeric<Sign>>},
                                           {"Square", on_gpu<numeric<Square>>},
                                           {"Sqrt", on_gpu<floating<Sqrt>>},
                                           {"Rsqrt", on_gpu<floating<Rsqrt>>},
                                           {"Reciprocal", on_gpu<floating<Reciprocal>>},
                                           {"Exp", on_gpu<floating<Exp>>},
                                           {"Expm1", on_gpu<floating<Expm1>>},
                                           {"Log", on_gpu<floating<Log>>},
                                           {"Log1p", on_gpu<floating<Log1p>>},
                                           {"Sin", on_gpu<floating<Sin>>},
                                           {"Cos", on_gpu<floating<Cos>>},
                                           {"Tanh", on_gpu<floating<Tanh>>},
                                           {"Sigmoid", on_gpu<floating<Sigmoid>>},
                                           {"Erf", on_gpu<floating<Erf>>},
                                           {"Floor", on_gpu<floating<Floor>>},
                                           {"Ceil", on_gpu<floating<Ceil>>},
                                           {"Round", on_gpu<floating<Round>>},
                                           {"IsNan", on_gpu<floating<IsNan, bool>>},
                                           {"IsFinite", on_gpu<floating<IsFinite, bool>>},
                                           {"LogicalNot", on_gpu<logical_not>}};
  return kernels;
}

}  // namespace tandem::cuda
