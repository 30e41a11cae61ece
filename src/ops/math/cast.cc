// Conversion between dtypes.
#include "core/multiversion.h"
#include "core/parallel.h"
#include "core/widen.h"
#include "op/record.h"
#include "ops/math/elementwise.h"
#include "ops/math/in_float32.h"
#include "ops/op_list.h"
#include "runtime/autocast.h"
#include "runtime/dispatch.h"
#include "tandem/math.h"

namespace tandem {
namespace {

struct CastAttrs {
  DType dtype = float32;
  TANDEM_FIELDS(dtype)
};

void infer_cast(InferContext& c) { c.add_output(c.attrs<CastAttrs>().dtype, c.shape(0)); }

template <class To, class From>
inline To convert(From value) {
  const auto v = static_cast<Compute<From>>(value);
  if constexpr (std::is_same_v<To, bool>)
    return v != Compute<From>{};
  else if constexpr (std::integral<To> && sizeof(To) < 4 && std::floating_point<Compute<From>>)
    return static_cast<To>(static_cast<std::int32_t>(v));  // wraps, as from int32
  else if constexpr (std::is_same_v<To, std::uint32_t> && std::floating_point<Compute<From>>)
    return static_cast<To>(static_cast<std::int64_t>(v));
  else
    return store_as<To>(v);
}

template <class To, class From>
TANDEM_INLINED void plain_cast(const From* from, To* __restrict__ to, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = convert<To>(from[i]);
}

template <class To, class From>
void cast_loop(const void* from, void* to, std::int64_t count) {
  const From* x = static_cast<const From*>(from);
  To* out = static_cast<To*>(to);
  if constexpr (is_16_bit_floating<From> && std::is_same_v<To, float>)
    widen(x, out, count);
  else if constexpr (std::is_same_v<From, float> && is_16_bit_floating<To>)
    narrow(x, out, count);
  else
    run_loop<std::conditional_t<has_versions<To>, To, From>, plain_cast<To, From>>(x, out, count);
}

using CastLoop = void (*)(const void*, void*, std::int64_t);

void run_cast(KernelContext& c, CastLoop loop) {
  const auto in_bytes = static_cast<std::int64_t>(size_of(c.inputs[0].dtype)),
             out_bytes = static_cast<std::int64_t>(size_of(c.outputs[0].dtype));
  parallel_for(c.inputs[0].size(), kElementwiseGrain, [&](std::int64_t begin, std::int64_t end) {
    loop(c.inputs[0].as<const std::byte>() + begin * in_bytes,
         c.outputs[0].as<std::byte>() + begin * out_bytes, end - begin);
  });
}

void cast_kernel(KernelContext& c) {
  const InFloat32 in_float32(c);
  const DType to = c.outputs[0].dtype;
  run_cast(c, switch_computed(c.inputs[0].dtype, [&]<class From>(TypeTag<From>) {
             return switch_computed(
                 to, []<class To>(TypeTag<To>) -> CastLoop { return cast_loop<To, From>; });
           }));
}

// One of the dtypes is for storage. Loops of one version each: they are bound by memory.
void cast_storage_kernel(KernelContext& c) {
  const DType from = c.inputs[0].dtype, to = c.outputs[0].dtype;
  const auto loop_to = [&]<class From>(TypeTag<From>) {
    const auto loop = []<class To>(TypeTag<To>) -> CastLoop {
      return [](const void* x, void* y, std::int64_t count) {
        plain_cast(static_cast<const From*>(x), static_cast<To*>(y), count);
      };
    };
    if constexpr (is_storage(dtype_of<From>))
      return switch_any_dtype(to, loop);
    else
      return switch_storage(to, loop);
  };
  run_cast(c, switch_any_dtype(from, loop_to));
}

void cast_gradient(GradContext& c) {
  // Casts to integers have no gradient.
  if (is_floating(c.output_spec(0).dtype)) c.set_grad(0, cast(c.grad(), c.input_spec(0).dtype));
}

const OpDef kCast = {.name = "Cast",
                     .attrs = attrs_type<CastAttrs>,
                     .infer = infer_cast,
                     .gradient = cast_gradient,
                     .cpu_kernel = cast_kernel,
                     .traits = kElementwise,
                     .chain = {ChainOp::kMove, ChainForm::kCast}};
// An operation of its own, because GPUs have kernels of the other one alone.
const OpDef kCastStorage = {.name = "CastStorage",
                            .attrs = attrs_type<CastAttrs>,
                            .infer = infer_cast,
                            .cpu_kernel = cast_storage_kernel,
                            .gpu = false,
                            .traits = kStorage};

}  // namespace

namespace {
[[maybe_unused]] const bool cast_registered = cast_tensor.set(cast);
}  // namespace

Tensor cast(const Tensor& x, DType dtype) {
  if (x.dtype() == dtype) return x;
  const bool storage = is_storage(x.dtype()) || is_storage(dtype);
  return run(storage ? kCastStorage : kCast, {&x}, CastAttrs{dtype});
}

OpList cast_ops() { return list_of<kCast, kCastStorage>(); }

}  // namespace tandem
