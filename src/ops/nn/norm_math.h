// Shared by the normalisations: dtypes of statistics, and checks of parameters.
#pragma once

#include "core/status.h"
#include "op/op.h"
#include "ops/math/elementwise.h"
#include "ops/nn/norm_attrs.h"

namespace tandem {

// Statistics of float64 data are float64; of all others, float32.
inline DType statistics_dtype(DType data) { return data == float64 ? float64 : float32; }

// Throws unless input `input` has one number per channel, in the dtype of the data or of its
// statistics.
inline void check_channel_parameter(InferContext& c, int input, std::int64_t channels) {
  const DType data = c.dtype(0), dtype = c.dtype(input);
  if (!dim::may_equal(c.shape(input), Shape{channels}))
    fail<ShapeError>("[{}] expected parameters of shape ({},), got {}", c.op().name,
                     dim::text(channels), c.shape(input).to_string());
  if (dtype != data && dtype != statistics_dtype(data))
    fail<DTypeError>("[{}] expected parameters of dtype {} for data of dtype {}, got {}",
                     c.op().name, name_of(statistics_dtype(data)), name_of(data), name_of(dtype));
}

// Checks inputs 1 and 2, gamma and beta.
inline void check_scale_and_shift(InferContext& c, std::int64_t channels) {
  for (int input : {1, 2}) check_channel_parameter(c, input, channels);
  if (c.dtype(1) != c.dtype(2))
    fail<DTypeError>("[{}] expected gamma and beta of one dtype, got {} and {}", c.op().name,
                     name_of(c.dtype(1)), name_of(c.dtype(2)));
}

inline void check_epsilon(InferContext& c) {
  const double epsilon = c.attrs<NormAttrs>().epsilon;
  if (!(epsilon >= 0.0))
    fail<InvalidArgumentError>("[{}] expected epsilon of 0 or more, got {}", c.op().name, epsilon);
}

// `count` uninitialised numbers of scratch memory.
template <class T>
T* take(KernelContext& c, std::int64_t count) {
  return static_cast<T*>(c.scratch(static_cast<std::size_t>(count) * sizeof(T)));
}

// Converts the elements to type C in scratch memory.
template <class C>
C* converted(KernelContext& context, const TensorView& view) {
  C* copy = take<C>(context, view.size());
  switch_floating(view.dtype, [&]<class T>(TypeTag<T>) {
    for (std::int64_t i = 0; i < view.size(); ++i) copy[i] = static_cast<C>(view.as<const T>()[i]);
  });
  return copy;
}

// Writes numbers to an output of any floating dtype.
template <class C>
void store(const TensorView& view, const C* values) {
  switch_floating(view.dtype, [&]<class T>(TypeTag<T>) {
    for (std::int64_t i = 0; i < view.size(); ++i) view.as<T>()[i] = store_as<T>(values[i]);
  });
}

}  // namespace tandem
