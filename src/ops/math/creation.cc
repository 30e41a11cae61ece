// Tensors whose values follow a rule. They are computed on the device, without copies from the
// host.
#include <bit>
#include <cmath>

#include "core/multiversion.h"
#include "core/parallel.h"
#include "ops/math/creation.h"
#include "ops/math/element_count.h"
#include "ops/math/elementwise.h"
#include "ops/math/in_float32.h"
#include "ops/math/number.h"
#include "ops/math/placed.h"
#include "ops/op_list.h"
#include "runtime/dispatch.h"
#include "runtime/trace.h"
#include "tandem/array.h"
#include "tandem/creation.h"
#include "tandem/math.h"

namespace tandem {
namespace {

void check_shape(std::string_view op, const Shape& shape) {
  for (std::int64_t size : shape.words())
    if (!dim::may_be_at_most(0, size))
      fail<ShapeError>("[{}] expected a shape of sizes of at least 0, got {}", op,
                       shape.to_string());
}

// --- constant fill ---

void infer_fill(InferContext& c) {
  const auto& attrs = c.attrs<FillAttrs>();
  check_shape("Fill", attrs.shape);
  check_number("Fill", attrs.dtype, attrs.value);
  c.add_output(attrs.dtype, attrs.shape);
}

template <class T>
TANDEM_MULTIVERSION void fill_loop(T* out, T value, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) out[i] = value;
}

template <class T>
void fill_elements(T* out, double value, std::int64_t count) {
  // Loops that copy Half and BFloat16 do not vectorise.
  using Word = std::conditional_t<is_16_bit_floating<T>, std::uint16_t, T>;
  fill_loop(reinterpret_cast<Word*>(out), std::bit_cast<Word>(to_element<T>(value)), count);
}

void fill_kernel(KernelContext& c) {
  const double value = c.attrs<FillAttrs>().value;
  switch_dtype(c.outputs[0].dtype, [&]<class T>(TypeTag<T>) {
    T* out = c.outputs[0].as<T>();
    parallel_for(c.outputs[0].size(), kElementwiseGrain, [&](std::int64_t begin, std::int64_t end) {
      fill_elements(out + begin, value, end - begin);
    });
  });
}

// --- sizes ---

void infer_element_count(InferContext& c) {
  const auto& attrs = c.attrs<ElementCountAttrs>();
  if (attrs.sizes.fully_defined())
    check_number("ElementCount", attrs.dtype, static_cast<double>(attrs.sizes.num_elements()));
  c.add_output(attrs.dtype, Shape::scalar());
}

void element_count_kernel(KernelContext& c) {
  const auto count = static_cast<double>(c.attrs<ElementCountAttrs>().sizes.num_elements());
  switch_dtype(c.outputs[0].dtype,
               [&]<class T>(TypeTag<T>) { *c.outputs[0].as<T>() = to_element<T>(count); });
}

// --- sequences ---

void infer_range(InferContext& c) {
  const auto& attrs = c.attrs<SequenceAttrs>();
  check_dtype("Range", kNumeric, attrs.dtype);
  check_number("Range", attrs.dtype, attrs.start);
  if (!dim::may_be_at_most(0, attrs.count))
    fail<InvalidArgumentError>("[Range] expected a count of at least 0, got {}",
                               dim::text(attrs.count));
  if (attrs.count > 1)
    check_number("Range", attrs.dtype,
                 attrs.start + static_cast<double>(attrs.count - 1) * attrs.step);
  if (is_integer(attrs.dtype)) check_number("Range", int64, attrs.step);
  c.add_output(attrs.dtype, Shape({attrs.count}));
}

template <class T>
TANDEM_INLINED void range_loop(T* out, double start, double step, std::int64_t begin,
                               std::int64_t end) {
  for (std::int64_t i = begin; i < end; ++i)
    out[i] = store_as<T>(start + static_cast<double>(i) * step);
}

void range_kernel(KernelContext& c) {
  const auto& attrs = c.attrs<SequenceAttrs>();
  const InFloat32 in_float32(c);
  switch_numeric(c.outputs[0].dtype, [&]<class T>(TypeTag<T>) {
    T* out = c.outputs[0].as<T>();
    parallel_for(attrs.count, kElementwiseGrain, [&](std::int64_t begin, std::int64_t end) {
      if constexpr (std::integral<T>) {
        const auto start = static_cast<std::int64_t>(attrs.start),
                   step = static_cast<std::int64_t>(attrs.step);
        for (std::int64_t i = begin; i < end; ++i) out[i] = static_cast<T>(start + i * step);
      } else {
        run_loop<T, range_loop<T>>(out, attrs.start, attrs.step, begin, end);
      }
    });
  });
}

void infer_linspace(InferContext& c) {
  const auto& attrs = c.attrs<SequenceAttrs>();
  check_dtype("LinSpace", kFloating, attrs.dtype);
  check_number("LinSpace", attrs.dtype, attrs.start);
  check_number("LinSpace", attrs.dtype, attrs.last);
  if (!dim::may_be_at_most(0, attrs.count))
    fail<InvalidArgumentError>("[LinSpace] expected a count of at least 0, got {}",
                               dim::text(attrs.count));
  c.add_output(attrs.dtype, Shape({attrs.count}));
}

void linspace_kernel(KernelContext& c) {
  const auto& attrs = c.attrs<SequenceAttrs>();
  const InFloat32 in_float32(c);
  const double step = attrs.linspace_step();
  switch_floating(c.outputs[0].dtype, [&]<class T>(TypeTag<T>) {
    T* out = c.outputs[0].as<T>();
    parallel_for(attrs.count, kElementwiseGrain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const bool is_last = i > 0 && i == attrs.count - 1;
        out[i] = store_as<T>(is_last ? attrs.last : attrs.start + static_cast<double>(i) * step);
      }
    });
  });
}

// --- the identity matrix ---

void infer_eye(InferContext& c) {
  const auto& attrs = c.attrs<EyeAttrs>();
  const Shape shape = {attrs.rows, attrs.columns};
  check_shape("Eye", shape);
  c.add_output(attrs.dtype, shape);
}

void eye_kernel(KernelContext& c) {
  const auto& attrs = c.attrs<EyeAttrs>();
  switch_dtype(attrs.dtype, [&]<class T>(TypeTag<T>) {
    T* out = c.outputs[0].as<T>();
    const std::int64_t rows = attrs.rows, columns = attrs.columns;
    const std::int64_t grain = std::max<std::int64_t>(1, kElementwiseGrain / (columns + 1));
    parallel_for(rows, grain, [&](std::int64_t begin, std::int64_t end) {
      fill_elements(out + begin * columns, 0.0, (end - begin) * columns);
      for (std::int64_t i = begin; i < std::min(end, columns); ++i)
        out[i * columns + i] = to_element<T>(1.0);
    });
  });
}

const OpDef kFill = {
    .name = "Fill", .attrs = attrs_type<FillAttrs>, .infer = infer_fill, .cpu_kernel = fill_kernel};
const OpDef kElementCount = {.name = "ElementCount",
                             .attrs = attrs_type<ElementCountAttrs>,
                             .infer = infer_element_count,
                             .cpu_kernel = element_count_kernel};
const OpDef kRange = {.name = "Range",
                      .attrs = attrs_type<SequenceAttrs>,
                      .infer = infer_range,
                      .cpu_kernel = range_kernel};
const OpDef kLinSpace = {.name = "LinSpace",
                         .attrs = attrs_type<SequenceAttrs>,
                         .infer = infer_linspace,
                         .cpu_kernel = linspace_kernel};
const OpDef kEye = {
    .name = "Eye", .attrs = attrs_type<EyeAttrs>, .infer = infer_eye, .cpu_kernel = eye_kernel};

}  // namespace

namespace {

Tensor make(const OpDef& op, AttrsRef attrs, const CreationOptions& options) {
  const Placed placed(options.device);
  return placed.mark(named(run(op, {}, attrs), options.name), options.requires_grad);
}

}  // namespace

Tensor full(const Shape& shape, double value, const CreationOptions& options) {
  if (is_storage(options.dtype)) {
    check_number("Fill", options.dtype, value);
    const Placed placed(options.device);
    const Tensor filled = broadcast_to(cast(full({}, value, {.dtype = float64}), options.dtype),
                                       shape.known() ? shape : Shape::scalar());
    return placed.mark(named(filled, options.name), options.requires_grad);
  }
  return make(kFill, FillAttrs{shape.known() ? shape : Shape::scalar(), value, options.dtype},
              options);
}
Tensor zeros(const Shape& shape, const CreationOptions& options) {
  return full(shape, 0.0, options);
}
Tensor ones(const Shape& shape, const CreationOptions& options) {
  return full(shape, 1.0, options);
}
Tensor zeros_like(const Tensor& tensor) {
  return full(tensor.shape(), 0.0, {.dtype = tensor.dtype()});
}
Tensor ones_like(const Tensor& tensor) {
  return full(tensor.shape(), 1.0, {.dtype = tensor.dtype()});
}

Tensor range(Dim limit, const CreationOptions& options) {
  const std::int64_t count = dim::max(0, limit.word());
  return make(kRange, SequenceAttrs{0.0, 1.0, 0.0, count, options.dtype}, options);
}

Tensor range(double start, double limit, double delta, const CreationOptions& options) {
  if (std::isnan(start) || std::isnan(limit))
    fail<InvalidArgumentError>("[Range] expected bounds that are numbers, got {} and {}", start,
                               limit);
  if (delta == 0.0 || !std::isfinite(delta))
    fail<InvalidArgumentError>("[Range] expected a finite delta other than 0, got {}", delta);
  const double count = std::max(0.0, std::ceil((limit - start) / delta));
  if (!(count < 0x1p53))
    fail<InvalidArgumentError>("[Range] expected finite bounds, got {} and {}", start, limit);
  return make(kRange,
              SequenceAttrs{start, delta, 0.0, static_cast<std::int64_t>(count), options.dtype},
              options);
}

Tensor linspace(double start, double stop, Dim count, const CreationOptions& options) {
  return make(kLinSpace, SequenceAttrs{start, 0.0, stop, count.word(), options.dtype}, options);
}

Tensor eye(Dim row_count, Dim column_count, const CreationOptions& options) {
  const std::int64_t rows = row_count.word(), columns = column_count.word();
  if (columns != -1 && !dim::may_be_at_most(0, columns))
    fail<InvalidArgumentError>("[Eye] expected columns of at least 0, or -1 for a square, got {}",
                               dim::text(columns));
  return make(kEye, EyeAttrs{rows, columns == -1 ? rows : columns, options.dtype}, options);
}

namespace detail {

Tensor constant_of(Dim size, const ConstantOptions& options) {
  const DType dtype = options.dtype.value_or(int32);
  if (size.known()) return constant(Literal(size.value()), options);
  const Placed placed(options.device);
  const Tensor number = scalar_of(size, dtype);
  const Tensor filled = options.shape.known() ? broadcast_to(number, options.shape) : number;
  return placed.mark(named(filled, options.name), options.requires_grad);
}

Tensor scalar_of(Dim size, DType dtype) {
  if (!dim::may_be_at_most(size, -1) || (!is_floating(dtype) && dtype != int32 && dtype != int64))
    return element_count(Shape({size}), dtype);
  // Differences of sizes may be negative in a run: one of these two is 0.
  return element_count(Shape({tandem::max(size, 0)}), dtype) -
         element_count(Shape({tandem::max(-size, 0)}), dtype);
}

Tensor full_of(const Shape& shape, Dim value, const CreationOptions& options) {
  if (value.known()) return full(shape, static_cast<double>(value), options);
  return constant(value, {.dtype = options.dtype,
                          .shape = shape.known() ? shape : Shape::scalar(),
                          .device = options.device,
                          .requires_grad = options.requires_grad,
                          .name = options.name});
}

Tensor range_of(Dim start, Dim limit, const CreationOptions& options) {
  const Dim count = tandem::max(limit - start, 0);
  if (start.known())
    return make(kRange,
                SequenceAttrs{static_cast<double>(start), 1.0, 0.0, count.word(), options.dtype},
                options);
  return add(range(count, options), scalar_of(start, options.dtype));
}

}  // namespace detail

OpList creation_ops() { return list_of<kFill, kElementCount, kRange, kLinSpace, kEye>(); }

Tensor element_count(const Shape& sizes, DType dtype) {
  if (!sizes.fully_defined()) return run(kElementCount, {}, ElementCountAttrs{sizes, dtype});
  return full(Shape::scalar(), static_cast<double>(sizes.num_elements()), {.dtype = dtype});
}

}  // namespace tandem
