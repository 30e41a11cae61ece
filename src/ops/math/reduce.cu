// The kernels of reduce.cc on a GPU.
#include <limits>

#include "ops/cuda/kernel_list.h"
#include "ops/cuda/reduce.cuh"
#include "ops/math/broadcast.h"
#include "ops/math/reduce.h"

namespace tandem::cuda {
namespace {

struct Plain {
  template <class C>
  __device__ C load(C x) const {
    return x;
  }
  template <class C>
  __device__ C finish(C x, std::int64_t) const {
    return x;
  }
};
struct Norm : SumOp {
  template <class C>
  __device__ C load(C x) const {
    return x * x;
  }
  template <class C>
  __device__ C finish(C x, std::int64_t) const {
    return ::sqrt(x);
  }
};
struct Prod : Plain {
  template <class C>
  __device__ C neutral() const {
    return C{1};
  }
  template <class C>
  __device__ C combine(C a, C b) const {
    return wrapping(a, b, [](auto x, auto y) { return x * y; });
  }
};
// NaN wins.
struct Max : Plain {
  template <class C>
  __device__ C neutral() const {
    return std::is_floating_point_v<C> ? -std::numeric_limits<C>::infinity()
                                       : std::numeric_limits<C>::lowest();
  }
  template <class C>
  __device__ C combine(C a, C b) const {
    return a > b || a != a ? a : b;
  }
};
struct Min : Plain {
  template <class C>
  __device__ C neutral() const {
    return std::is_floating_point_v<C> ? std::numeric_limits<C>::infinity()
                                       : std::numeric_limits<C>::max();
  }
  template <class C>
  __device__ C combine(C a, C b) const {
    return a < b || a != a ? a : b;
  }
};
struct Any : Plain {
  template <class C>
  __device__ C neutral() const {
    return false;
  }
  template <class C>
  __device__ C combine(C a, C b) const {
    return a || b;
  }
};
struct All : Plain {
  template <class C>
  __device__ C neutral() const {
    return true;
  }
  template <class C>
  __device__ C combine(C a, C b) const {
    return a && b;
  }
};

std::uint32_t axes_of(const KernelContext& c) {
  return reduced_axes(c.op->name, c.attrs<ReduceAttrs>(), c.inputs[0].shape.rank());
}

template <class Op>
void numeric(KernelContext& c) {
  switch_numeric(c.inputs[0].dtype, [&]<class T>(Type<T>) {
    reduce_on<T>(c, c.inputs[0], axes_of(c), c.outputs[0], Op());
  });
}
void sum_to_shape_kernel(KernelContext& c) {
  switch_numeric(c.inputs[0].dtype, [&]<class T>(Type<T>) {
    reduce_on<T>(c, c.inputs[0], repeated_axes(c.inputs[0].shape, c.outputs[0].shape), c.outputs[0],
                 SumOp());
  });
}
void mean_kernel(KernelContext& c) {
  switch_floating(c.inputs[0].dtype, [&]<class T>(Type<T>) {
    reduce_on<T>(c, c.inputs[0], axes_of(c), c.outputs[0], SumOp{.mean = true});
  });
}
void norm_kernel(KernelContext& c) {
  switch_floating(c.inputs[0].dtype, [&]<class T>(Type<T>) {
    reduce_on<T>(c, c.inputs[0], axes_of(c), c.outputs[0], Norm());
  });
}
template <class Op>
void logical(KernelContext& c) {
  reduce_on<bool>(c, c.inputs[0], axes_of(c), c.outputs[0], Op());
}

}  // namespace

KernelList reduce_kernels() {
  static constexpr CudaKernel kernels[] = {{"Sum", on_gpu<numeric<SumOp>>},
                                           {"Mean", on_gpu<mean_kernel>},
                                           {"Prod", on_gpu<numeric<Prod>>},
                                           {"Max", on_gpu<numeric<Max>>},
                                           {"Min", on_gpu<numeric<Min>>},
                                           {"Any", on_gpu<logical<Any>>},
                                           {"All", on_gpu<logical<All>>},
                                           {"EuclideanNorm", on_gpu<norm_kernel>},
                                           {"SumToShape", on_gpu<sum_to_shape_kernel>}};
  return kernels;
}

}  // namespace tandem::cuda
