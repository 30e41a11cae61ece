// The order of the elements of rows.
#include <algorithm>
#include <bit>
#include <limits>

#include "core/parallel.h"
#include "ops/math/elementwise.h"
#include "ops/math/in_float32.h"
#include "ops/math/reduce.h"
#include "runtime/dispatch.h"

namespace tandem {
namespace {

using Wide = unsigned __int128;

// An unsigned number for x, in the order of x: NaN is above all others, and -0 is 0.
template <class T>
auto number_in_order(T x) {
  using C = Compute<T>;
  using U = std::conditional_t<sizeof(C) == 8, std::uint64_t, std::uint32_t>;
  constexpr U kSign = U{1} << (std::numeric_limits<U>::digits - 1);
  if constexpr (std::is_floating_point_v<C>) {
    const C value = static_cast<C>(x) + C{0};
    if (value != value) return std::numeric_limits<U>::max();
    const U bits = std::bit_cast<U>(value);
    return (bits & kSign) != 0 ? static_cast<U>(~bits) : static_cast<U>(bits | kSign);
  } else {
    return static_cast<U>(static_cast<U>(x) + (std::is_signed_v<C> ? kSign : 0));
  }
}

// Numbers are sorted with their positions in the low half, so that equal ones keep their order.
template <class Pair, class T>
void argsort_row(const T* x, std::int64_t count, bool descending, Pair* pairs, std::int64_t* out) {
  constexpr int kHalf = 4 * static_cast<int>(sizeof(Pair));
  for (std::int64_t i = 0; i < count; ++i) {
    const auto number = number_in_order(x[i]);
    using U = std::remove_const_t<decltype(number)>;
    pairs[i] = Pair{descending ? static_cast<U>(~number) : number} << kHalf | static_cast<Pair>(i);
  }
  std::sort(pairs, pairs + count);
  for (std::int64_t i = 0; i < count; ++i)
    out[i] = static_cast<std::int64_t>(pairs[i] & ((Pair{1} << kHalf) - 1));
}

template <class Pair, class T>
void argsort_rows(KernelContext& c, std::int64_t columns) {
  const bool descending = c.attrs<ArgsortAttrs>().descending;
  const std::int64_t rows = c.outputs[0].size() / columns;
  const T* const x = c.inputs[0].as<const T>();
  auto* const out = c.outputs[0].as<std::int64_t>();
  const std::int64_t threads = std::clamp<std::int64_t>(
      c.outputs[0].size() / 4096, 1, std::min<std::int64_t>(intra_op_threads(), rows));
  auto* const pairs =
      static_cast<Pair*>(c.scratch(static_cast<std::size_t>(threads * columns) * sizeof(Pair)));
  parallel_for(threads, 1, [&](std::int64_t thread, std::int64_t last) {
    for (; thread < last; ++thread)
      for (std::int64_t row = thread; row < rows; row += threads)
        argsort_row(x + row * columns, columns, descending, pairs + thread * columns,
                    out + row * columns);
  });
}

void argsort_kernel(KernelContext& c) {
  if (c.outputs[0].size() == 0) return;
  const InFloat32 in_float32(c);
  const std::int64_t columns = c.inputs[0].shape.word(c.inputs[0].shape.rank() - 1);
  switch_numeric(c.inputs[0].dtype, [&]<class T>(TypeTag<T>) {
    if constexpr (sizeof(Compute<T>) < 8) {
      if (columns <= std::numeric_limits<std::uint32_t>::max())
        return argsort_rows<std::uint64_t, T>(c, columns);
    }
    argsort_rows<Wide, T>(c, columns);
  });
}

void infer_argsort(InferContext& c) {
  check_dtype(c.op().name, kNumeric, c.dtype(0));
  if (c.shape(0).rank() == 0)
    fail<ShapeError>("[Argsort] expected a tensor with an axis, got a scalar");
  c.add_output(int64, c.shape(0));
}

}  // namespace

const OpDef kArgsort = {.name = "Argsort",
                        .attrs = attrs_type<ArgsortAttrs>,
                        .infer = infer_argsort,
                        .cpu_kernel = argsort_kernel,
                        .gpu = false};

}  // namespace tandem
