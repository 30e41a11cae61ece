// Padding of tensors.
#include "ops/array/pad.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "core/parallel.h"
#include "core/status.h"
#include "op/dtype_switch.h"
#include "op/record.h"
#include "ops/array/array_ops.h"
#include "ops/math/number.h"
#include "runtime/dispatch.h"
#include "tandem/array.h"

namespace tandem {
namespace {

void infer_pad(InferContext& c) {
  const Shape& shape = c.shape(0);
  const PadAttrs& attrs = c.attrs<PadAttrs>();
  bool valid = attrs.before.size() == shape.rank() && attrs.after.size() == shape.rank();
  for (const std::int64_t count : attrs.before) valid = valid && dim::may_be_at_most(0, count);
  for (const std::int64_t count : attrs.after) valid = valid && dim::may_be_at_most(0, count);
  if (!valid)
    fail<ShapeError>(
        "[Pad] expected {} pairs of counts of at least 0 for shape {}, got {} before and {} after",
        shape.rank(), shape.to_string(), text_of(attrs.before), text_of(attrs.after));
  check_number("Pad", c.dtype(0), attrs.value);
  Dims dims;
  for (int axis = 0; axis < shape.rank(); ++axis)
    dims.push_back(c.sum(c.sum(attrs.before[axis], shape.word(axis)), attrs.after[axis]));
  c.add_output(c.dtype(0), Shape(dims));
}

template <class Word>
void fill_words(Word* out, std::int64_t count, Word value) {
  if (value == Word(0))
    std::memset(out, 0, static_cast<std::size_t>(count) * sizeof(Word));
  else
    std::fill_n(out, count, value);
}

// Writes the output row by row. A row is the last padded axis with all axes after it. Word: an
// unsigned integer of the elements' size.
template <class Word>
void pad_rows(KernelContext& c, Word value) {
  const PadAttrs& attrs = c.attrs<PadAttrs>();
  const PadAxes axes(c.inputs[0].shape, c.outputs[0].shape, attrs.before);
  const Word* input = c.inputs[0].as<const Word>();
  Word* output = c.outputs[0].as<Word>();

  const int last = axes.rank - 1;
  const std::int64_t lead = axes.before[last], middle = axes.from[last], length = axes.to[last];
  parallel_for(c.outputs[0].size() / length, std::max<std::int64_t>(1, 16 * 1024 / length),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t row = begin; row < end; ++row) {
                   const std::int64_t source = axes.source_of(row, last);
                   Word* target = output + row * length;
                   if (source < 0) {
                     fill_words(target, length, value);
                     continue;
                   }
                   fill_words(target, lead, value);
                   std::copy_n(input + source * middle, middle, target + lead);
                   fill_words(target + lead + middle, length - lead - middle, value);
                 }
               });
}

void pad_kernel(KernelContext& c) {
  if (c.outputs[0].size() == 0) return;
  switch_dtype(c.outputs[0].dtype, [&]<class T>(TypeTag<T>) {
    using Word = std::conditional_t<
        sizeof(T) == 8, std::uint64_t,
        std::conditional_t<sizeof(T) == 4, std::uint32_t,
                           std::conditional_t<sizeof(T) == 2, std::uint16_t, std::uint8_t>>>;
    pad_rows(c, std::bit_cast<Word>(to_element<T>(c.attrs<PadAttrs>().value)));
  });
}

void pad_gradient(GradContext& c) {
  c.set_grad(0, slice(c.grad(), c.attrs<PadAttrs>().before, c.input_spec(0).shape.words()));
}

void infer_slice_grad(InferContext& c) {
  const Shape& part = c.shape(0);
  const auto& attrs = c.attrs<SliceGradAttrs>();
  const Shape& whole = attrs.shape;
  bool valid =
      dim::are_sizes(whole) && whole.rank() == part.rank() && attrs.before.size() == part.rank();
  for (int axis = 0; valid && axis < part.rank(); ++axis)
    valid =
        dim::may_be_at_most(0, attrs.before[axis]) &&
        dim::may_be_at_most(attrs.before[axis], whole.word(axis)) &&
        dim::may_be_at_most(part.word(axis), dim::difference(whole.word(axis), attrs.before[axis]));
  if (!valid)
    fail<ShapeError>("[SliceGrad] expected a part of shape {} from {} on, got shape {}",
                     whole.to_string(), text_of(attrs.before), part.to_string());
  c.add_output(c.dtype(0), whole);
}

void slice_grad_gradient(GradContext& c) {
  c.set_grad(0, slice(c.grad(), c.attrs<SliceGradAttrs>().before, c.input_spec(0).shape.words()));
}

}  // namespace

const OpDef kSliceGrad = {.name = "SliceGrad",
                          .attrs = &attrs_type<SliceGradAttrs>,
                          .infer = infer_slice_grad,
                          .gradient = slice_grad_gradient,
                          .cpu_kernel = pad_kernel,
                          .traits = kIdentityIfSame};
const OpDef kPad = {.name = "Pad",
                    .attrs = &attrs_type<PadAttrs>,
                    .infer = infer_pad,
                    .gradient = pad_gradient,
                    .cpu_kernel = pad_kernel};

Tensor pad(const Tensor& x, const std::vector<std::pair<Dim, Dim>>& paddings, double value) {
  PadAttrs attrs{.value = value};
  for (const auto& [before, after] : paddings) {
    attrs.before.push_back(before.word());
    attrs.after.push_back(after.word());
  }
  return run(kPad, {&x}, attrs);
}

}  // namespace tandem
