#include <algorithm>
#include <cctype>
#include <cstring>
#include <string>

#include "core/status.h"
#include "op/record.h"
#include "ops/array/array_ops.h"
#include "ops/math/activation_math.h"
#include "ops/math/elementwise.h"
#include "ops/math/in_float32.h"
#include "ops/nn/activation.h"
#include "ops/nn/conv.h"
#include "ops/nn/conv_plain.h"
#include "ops/nn/dense.h"
#include "ops/nn/window.h"
#include "ops/onednn/onednn.h"
#include "ops/op_list.h"
#include "runtime/dispatch.h"
#include "runtime/gradient_buffer.h"
#include "tandem/array.h"
#include "tandem/nn.h"

namespace tandem {

namespace {

void check_conv(std::string_view op, const ConvAttrs& a, const Shape& x, const Shape& kernel) {
  if (x.rank() != 4 || kernel.rank() != 4)
    fail<ShapeError>(
        "[{}] expected images [n, h, w, in] and a kernel [kh, kw, in / groups, out], got shapes "
        "{} and {}",
        op, x.to_string(), kernel.to_string());
  if (const char* expected =
          nn::expected_of_windows({a.stride_h, a.stride_w, a.dilation_h, a.dilation_w, a.groups}))
    fail<InvalidArgumentError>(
        "[{}] expected strides, dilations and groups {}, got {}x{}, {}x{} and {}", op, expected,
        dim::text(a.stride_h), dim::text(a.stride_w), dim::text(a.dilation_h),
        dim::text(a.dilation_w), dim::text(a.groups));
  if (!nn::may_be_paddings({a.pad_top, a.pad_bottom, a.pad_left, a.pad_right}, nn::kMaxWindow))
    fail<InvalidArgumentError>(
        "[{}] expected paddings of 0 or more and below 2^31, got {}, {}, {} and {}", op,
        dim::text(a.pad_top), dim::text(a.pad_bottom), dim::text(a.pad_left),
        dim::text(a.pad_right));
  if (!dim::are_sizes(x) || !dim::are_sizes(kernel))
    fail<ShapeError>("[{}] expected sizes of 0 or more, got shapes {} and {}", op,
                     text_of(x.words()), text_of(kernel.words()));
  if (dim::num_elements(kernel) == 0)
    fail<ShapeError>("[{}] expected a kernel that is not empty, got shape {}", op,
                     kernel.to_string());
  if (std::max(kernel.word(0), kernel.word(1)) >= nn::kMaxWindow)
    fail<ShapeError>("[{}] expected a kernel below 2^31 in height and width, got shape {}", op,
                     kernel.to_string());
  if (!dim::may_equal(x.word(3), dim::product(kernel.word(2), a.groups)) ||
      !dim::may_be_multiple(kernel.word(3), a.groups))
    fail<ShapeError>(
        "[{}] expected a kernel of {} input channels and a multiple of {} output channels for "
        "images of shape {} in "
        "{} groups, got shape {}",
        op,
        dim::is_unknown(x.word(3))
            ? dim::text(dim::quotient(x.word(3), a.groups))
            : fmt::format("{}", static_cast<double>(x.word(3)) / static_cast<double>(a.groups)),
        dim::text(a.groups), x.to_string(), dim::text(a.groups), kernel.to_string());
}

}  // namespace

ConvShape conv_shape(std::string_view op, const ConvAttrs& a, DType dtype, const Shape& x,
                     const Shape& kernel) {
  check_conv(op, a, x, kernel);
  const nn::WindowAxis rows = nn::place_windows(x.word(1), kernel.word(0), a.stride_h, a.dilation_h,
                                                {a.padding, a.pad_top, a.pad_bottom});
  const nn::WindowAxis columns = nn::place_windows(
      x.word(2), kernel.word(1), a.stride_w, a.dilation_w, {a.padding, a.pad_left, a.pad_right});
  if (a.padding != nn::Padding::kSame &&
      (rows.output == 0 || columns.output == 0 || x.word(1) == 0 || x.word(2) == 0))
    fail<ShapeError>(
        "[{}] expected images{} as large as the {}x{} kernel (dilation {}x{}), got shape {}", op,
        a.padding == nn::Padding::kExplicit ? " with their padding" : "", dim::text(kernel.word(0)),
        dim::text(kernel.word(1)), dim::text(a.dilation_h), dim::text(a.dilation_w), x.to_string());
  return {.dtype = dtype,
          .n = x.word(0),
          .h = x.word(1),
          .w = x.word(2),
          .in = x.word(3),
          .kh = kernel.word(0),
          .kw = kernel.word(1),
          .out = kernel.word(3),
          .groups = a.groups,
          .oh = rows.output,
          .ow = columns.output,
          .stride_h = a.stride_h,
          .stride_w = a.stride_w,
          .dilation_h = a.dilation_h,
          .dilation_w = a.dilation_w,
          .pad_top = rows.pad_begin,
          .pad_bottom = rows.pad_end,
          .pad_left = columns.pad_begin,
          .pad_right = columns.pad_end};
}

namespace {

extern const OpDef kConv2D, kFusedConv2D, kConv2DBackpropInput, kConv2DBackpropFilter;

Shape result_of(const ConvShape& conv) { return {conv.n, conv.oh, conv.ow, conv.out}; }

void check_dtypes(InferContext& c) {
  check_dtype(c.op().name, kFloating, c.dtype(0));
  for (int i = 1; i < c.num_inputs(); ++i)
    if (c.dtype(i) != c.dtype(0))
      fail<DTypeError>("[{}] expected one dtype, got {} and {}", c.op().name, name_of(c.dtype(0)),
                       name_of(c.dtype(i)));
}

void check_result(std::string_view op, const ConvShape& conv, const Shape& dy) {
  if (!dim::may_equal(dy, result_of(conv)))
    fail<ShapeError>("[{}] expected a gradient of shape {}, got {}", op,
                     result_of(conv).to_string(), dy.to_string());
}

void infer_conv(InferContext& c) {
  check_dtypes(c);
  const ConvShape conv =
      conv_shape(c.op().name, c.attrs<ConvAttrs>(), c.dtype(0), c.shape(0), c.shape(1));
  if (c.num_inputs() == 3 && !dim::may_equal(c.shape(2), Shape{conv.out}))
    fail<ShapeError>("[{}] expected a bias of shape ({},), got {}", c.op().name,
                     dim::text(conv.out), c.shape(2).to_string());
  c.add_output(c.dtype(0), result_of(conv));
}

void infer_backprop_input(InferContext& c) {
  check_dtypes(c);
  const auto& attrs = c.attrs<ConvAttrs>();
  const Shape &dy = c.shape(0), &kernel = c.shape(1);
  if (dy.rank() != 4 || kernel.rank() != 4)
    fail<ShapeError>("[{}] expected tensors of rank 4, got shapes {} and {}", c.op().name,
                     dy.to_string(), kernel.to_string());
  const std::int64_t groups = dim::max(0, attrs.groups);  // checked in conv_shape
  const Shape x{dy.word(0), attrs.height, attrs.width, c.product(kernel.word(2), groups)};
  check_result(c.op().name, conv_shape(c.op().name, attrs, c.dtype(0), x, kernel), dy);
  c.add_output(c.dtype(0), x);
}

void infer_backprop_filter(InferContext& c) {
  check_dtypes(c);
  const auto& attrs = c.attrs<ConvAttrs>();
  const Shape &x = c.shape(0), &dy = c.shape(1);
  if (x.rank() != 4 || dy.rank() != 4)
    fail<ShapeError>("[{}] expected tensors of rank 4, got shapes {} and {}", c.op().name,
                     x.to_string(), dy.to_string());
  const Shape kernel{attrs.height, attrs.width,
                     dim::floor_quotient(x.word(3), dim::max(1, attrs.groups)), dy.word(3)};
  check_result(c.op().name, conv_shape(c.op().name, attrs, c.dtype(0), x, kernel), dy);
  c.add_output(c.dtype(0), kernel);
}

void conv_kernel(KernelContext& c) {
  const TensorView &x = c.inputs[0], &kernel = c.inputs[1], &y = c.outputs[0];
  if (y.size() == 0) return;
  const InFloat32 in_float32(c, !onednn::computes(bfloat16));
  const auto& attrs = c.attrs<ConvAttrs>();
  const bool bias = c.inputs.size() == 3;
  const ConvShape conv = conv_shape("", attrs, x.dtype, x.shape, kernel.shape);
  if (x.dtype == float64) {
    plain_conv_forward(conv, x.as<const double>(), kernel.as<const double>(),
                       bias ? c.inputs[2].as<const double>() : nullptr, y.as<double>());
    nn::activate_in_place(attrs.activation, y.as<double>(), y.size());
    return;
  }
  onednn::conv_forward(c, conv, x.data, kernel, bias ? c.inputs[2].data : nullptr, y.data);
  nn::activate_in_place(attrs.activation, y.dtype, y.data, y.size());
}

void set_rows_to_zero(const TensorView& view) {
  const std::size_t bytes = static_cast<std::size_t>(view.size()) * size_of(view.dtype);
  if (bytes > 0) std::memset(view.data, 0, bytes);
}

void backprop_input_kernel(KernelContext& c) {
  const TensorView &dy = c.inputs[0], &kernel = c.inputs[1], &dx = c.outputs[0];
  if (dx.size() == 0 || dy.size() == 0) return set_rows_to_zero(dx);
  const InFloat32 in_float32(c, !onednn::computes(bfloat16));
  const ConvShape conv = conv_shape("", c.attrs<ConvAttrs>(), dy.dtype, dx.shape, kernel.shape);
  if (dy.dtype == float64)
    return plain_conv_backward_input(conv, dy.as<const double>(), kernel.as<const double>(),
                                     dx.as<double>());
  onednn::conv_backward_input(c, conv, dy.data, kernel, dx.data);
}

void backprop_filter_kernel(KernelContext& c) {
  const TensorView &x = c.inputs[0], &dy = c.inputs[1], &dkernel = c.outputs[0];
  if (x.size() == 0 || dy.size() == 0) return set_rows_to_zero(dkernel);
  const InFloat32 in_float32(c, !onednn::computes(bfloat16));
  const ConvShape conv = conv_shape("", c.attrs<ConvAttrs>(), x.dtype, x.shape, dkernel.shape);
  if (x.dtype == float64)
    return plain_conv_backward_filter(conv, x.as<const double>(), dy.as<const double>(),
                                      dkernel.as<double>());
  onednn::conv_backward_filter(c, conv, x.data, dy.data, dkernel.data);
}

Tensor backprop_input(const ConvAttrs& attrs, const Tensor& dy, const Tensor& kernel,
                      const Shape& x) {
  ConvAttrs backward = attrs;
  backward.height = x.word(1);
  backward.width = x.word(2);
  return run(kConv2DBackpropInput, {&dy, &kernel}, backward);
}

Tensor backprop_filter(const ConvAttrs& attrs, const Tensor& x, const Tensor& dy,
                       const Shape& kernel) {
  ConvAttrs backward = attrs;
  backward.height = kernel.word(0);
  backward.width = kernel.word(1);
  return run(kConv2DBackpropFilter, {&x, &dy}, backward);
}

// The attributes of the plain convolution: without activation and without a result size.
ConvAttrs plain(ConvAttrs attrs) {
  attrs.activation = nn::Activation::kLinear;
  attrs.height = attrs.width = 0;
  return attrs;
}

void gradients(GradContext& c, const Tensor& dz) {
  const ConvAttrs attrs = plain(c.attrs<ConvAttrs>());
  // Computed first, while dz is in the cache. oneDNN's bias gradient, which is part of the kernel's
  // gradient, is slower.
  if (c.num_inputs() == 3 && c.needs_grad(2)) c.set_grad(2, run(kBiasAddGrad, {&dz}));
  if (c.needs_grad(1)) {
    const GradientBufferScope place(c, 1);
    c.set_grad(1, backprop_filter(attrs, c.input(0), dz, c.input_spec(1).shape));
  }
  if (c.needs_grad(0)) c.set_grad(0, backprop_input(attrs, dz, c.input(1), c.input_spec(0).shape));
}

void conv_gradient(GradContext& c) { gradients(c, c.grad()); }

void fused_conv_gradient(GradContext& c) {
  gradients(c, nn::fused_activation_gradient(c.attrs<ConvAttrs>().activation, c.take_grad(),
                                             c.output(0)));
}

void backprop_input_gradient(GradContext& c) {
  const ConvAttrs attrs = plain(c.attrs<ConvAttrs>());
  const Tensor& g = c.grad();
  if (c.needs_grad(0)) c.set_grad(0, run(kConv2D, {&g, &c.input(1)}, attrs));
  if (c.needs_grad(1)) c.set_grad(1, backprop_filter(attrs, g, c.input(0), c.input_spec(1).shape));
}

void backprop_filter_gradient(GradContext& c) {
  const ConvAttrs attrs = plain(c.attrs<ConvAttrs>());
  const Tensor& g = c.grad();
  if (c.needs_grad(0)) c.set_grad(0, backprop_input(attrs, c.input(1), g, c.input_spec(0).shape));
  if (c.needs_grad(1)) c.set_grad(1, run(kConv2D, {&c.input(0), &g}, attrs));
}

// Inputs: images, kernel, and optionally a bias.
const OpDef kConv2D = {.name = "Conv2D",
                       .attrs = &attrs_type<ConvAttrs>,
                       .infer = infer_conv,
                       .gradient = conv_gradient,
                       .cpu_kernel = conv_kernel,
                       .autocast = kAutocastLower,
                       .saved_inputs = 0b011};
// With an activation, whose gradient reads the result.
const OpDef kFusedConv2D = {.name = "FusedConv2D",
                            .attrs = &attrs_type<ConvAttrs>,
                            .infer = infer_conv,
                            .gradient = fused_conv_gradient,
                            .cpu_kernel = conv_kernel,
                            .autocast = kAutocastLower,
                            .saved_inputs = 0b011,
                            .saved_outputs = 0b1};
const OpDef kConv2DBackpropInput = {.name = "Conv2DBackpropInput",
                                    .attrs = &attrs_type<ConvAttrs>,
                                    .infer = infer_backprop_input,
                                    .gradient = backprop_input_gradient,
                                    .cpu_kernel = backprop_input_kernel,
                                    .autocast = kAutocastLower,
                                    .saved_inputs = 0b11};
const OpDef kConv2DBackpropFilter = {.name = "Conv2DBackpropFilter",
                                     .attrs = &attrs_type<ConvAttrs>,
                                     .infer = infer_backprop_filter,
                                     .gradient = backprop_filter_gradient,
                                     .cpu_kernel = backprop_filter_kernel,
                                     .saved_inputs = 0b11};

}  // namespace

OpList conv_ops() {
  return list_of<kConv2D, kFusedConv2D, kConv2DBackpropInput, kConv2DBackpropFilter>();
}

namespace nn {

Padding padding_from_name(std::string_view name) {
  std::string lower(name);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  if (lower == "valid") return Padding::kValid;
  if (lower == "same") return Padding::kSame;
  fail<InvalidArgumentError>("[padding] expected 'valid' or 'same', got '{}'", name);
}

WindowPadding::WindowPadding(Padding kind) : kind_(kind) {
  if (kind == Padding::kExplicit)
    fail<InvalidArgumentError>("[padding] expected 'valid', 'same' or numbers, got kExplicit");
}
WindowPadding::WindowPadding(Sides rows, Sides columns)
    : kind_(Padding::kExplicit), rows_(rows), columns_(columns) {
  if (std::min({rows.first, rows.second, columns.first, columns.second}) < 0)
    fail<InvalidArgumentError>("[padding] expected numbers of 0 or more, got {}, {}, {} and {}",
                               rows.first, rows.second, columns.first, columns.second);
}

namespace {

// The attributes of conv2d() and conv2d_transpose() but the activation.
template <class Options>
ConvAttrs attrs_of(const Options& options) {
  return {.stride_h = options.strides.height,
          .stride_w = options.strides.width,
          .dilation_h = options.dilations.height,
          .dilation_w = options.dilations.width,
          .groups = options.groups,
          .padding = options.padding.kind(),
          .pad_top = options.padding.rows().first,
          .pad_bottom = options.padding.rows().second,
          .pad_left = options.padding.columns().first,
          .pad_right = options.padding.columns().second};
}

// An axis of the result of conv2d_transpose().
struct TransposedAxis {
  std::int64_t size;  // as Conv2DBackpropInput computes it
  std::int64_t more;  // zeros after it
};

// `after` becomes less where the output padding undoes it.
TransposedAxis transposed_axis(std::int64_t size, std::int64_t kernel, std::int64_t stride,
                               std::int64_t dilation, Padding padding, std::int64_t before,
                               std::int64_t& after, std::optional<std::int64_t> output_padding) {
  const std::int64_t reach = dim::sum(dim::product(dim::difference(kernel, 1), dilation), 1);
  const bool given = padding == Padding::kExplicit;
  if (!given && !output_padding)
    return {dim::sum(dim::product(size, stride),
                     padding == Padding::kSame ? 0 : dim::max(0, dim::difference(reach, stride))),
            0};
  std::int64_t more = output_padding.value_or(0);
  if (more < 0 || more >= (given ? std::max(stride, dilation) : stride))
    fail<InvalidArgumentError>(
        "[Conv2DTranspose] expected an output_padding of 0 or more and less than the stride {} or "
        "the dilation {}, got {}",
        stride, dilation, more);
  const std::int64_t undone = std::min(more, after);
  after -= undone;
  more -= undone;
  const std::int64_t removed = padding == Padding::kSame
                                   ? dim::product(dim::floor_quotient(reach, 2), 2)
                                   : dim::sum(before, after);
  const std::int64_t full = dim::sum(dim::product(dim::difference(size, 1), stride), reach);
  const std::int64_t kept = dim::difference(full, removed);
  // A convolution of more elements would have another window.
  return more < stride ? TransposedAxis{dim::sum(kept, more), 0} : TransposedAxis{kept, more};
}

}  // namespace

Tensor conv2d(const Tensor& x, const Tensor& kernel, const Tensor& bias,
              const Conv2DOptions& options) {
  const bool fused = is_fused(options.activation);
  ConvAttrs attrs = attrs_of(options);
  if (fused) attrs.activation = options.activation;
  const OpDef& op = attrs.activation == Activation::kLinear ? kConv2D : kFusedConv2D;
  const Tensor y =
      bias.defined() ? run(op, {&x, &kernel, &bias}, attrs) : run(op, {&x, &kernel}, attrs);
  return fused ? y : activate(y, options.activation);
}

Tensor depthwise_conv2d(const Tensor& x, const Tensor& kernel, const Tensor& bias,
                        const Conv2DOptions& options) {
  const Shape& taps = kernel.shape();
  if (x.rank() != 4 || taps.rank() != 4 || !dim::may_equal(taps.word(2), x.size_word(3)))
    fail<ShapeError>(
        "[DepthwiseConv2D] expected images [n, h, w, in] and a kernel [kh, kw, in, multiplier], "
        "got shapes {} and {}",
        x.shape().to_string(), taps.to_string());
  if (options.groups != 1)
    fail<InvalidArgumentError>("[DepthwiseConv2D] expected no groups, got {}", options.groups);
  // One group per channel: the kernel has the memory layout of a grouped convolution.
  Conv2DOptions grouped = options;
  grouped.groups = taps.word(2);
  return conv2d(
      x, reshape(kernel, {taps.word(0), taps.word(1), 1, dim::product(taps.word(2), taps.word(3))}),
      bias, grouped);
}

Tensor conv2d_transpose(const Tensor& x, const Tensor& kernel, const Tensor& bias,
                        const Conv2DTransposeOptions& options) {
  const Shape& taps = kernel.shape();
  if (x.rank() != 4 || taps.rank() != 4 || !dim::may_equal(taps.word(3), x.size_word(3)))
    fail<ShapeError>(
        "[Conv2DTranspose] expected images [n, h, w, in] and a kernel [kh, kw, out / groups, in], "
        "got shapes {} and {}",
        x.shape().to_string(), taps.to_string());
  ConvAttrs attrs = attrs_of(options);
  if (const char* expected = nn::expected_of_windows(
          {attrs.stride_h, attrs.stride_w, attrs.dilation_h, attrs.dilation_w, attrs.groups}))
    fail<InvalidArgumentError>(
        "[Conv2DTranspose] expected strides, dilations and groups {}, got {}x{}, {}x{} and {}",
        expected, attrs.stride_h, attrs.stride_w, attrs.dilation_h, attrs.dilation_w, attrs.groups);
  const auto& more = options.output_padding;
  const TransposedAxis rows = transposed_axis(
      x.size_word(1), taps.word(0), attrs.stride_h, attrs.dilation_h, attrs.padding, attrs.pad_top,
      attrs.pad_bottom, more ? std::optional(more->height) : std::nullopt);
  const TransposedAxis columns = transposed_axis(
      x.size_word(2), taps.word(1), attrs.stride_w, attrs.dilation_w, attrs.padding, attrs.pad_left,
      attrs.pad_right, more ? std::optional(more->width) : std::nullopt);
  attrs.height = rows.size;
  attrs.width = columns.size;
  if (dim::max(attrs.height, 0) == 0 || dim::max(attrs.width, 0) == 0)
    fail<ShapeError>(
        "[Conv2DTranspose] expected a result of at least one pixel, got {} x {} for shape {}",
        dim::text(attrs.height), dim::text(attrs.width), x.shape().to_string());
  Tensor y = run(kConv2DBackpropInput, {&x, &kernel}, attrs);
  if (rows.more > 0 || columns.more > 0)
    y = pad(y, {{0, 0}, {0, rows.more}, {0, columns.more}, {0, 0}});
  return activate(bias.defined() ? bias_add(y, bias) : y, options.activation);
}

}  // namespace nn
}  // namespace tandem
