// Dropout: N. Srivastava et al., 2014; kept elements are scaled up in training ("inverted
// dropout").
#include "ops/nn/dropout.h"

#include <cstdint>

#include "core/multiversion.h"
#include "core/parallel.h"
#include "core/status.h"
#include "core/widen.h"
#include "op/dtype_switch.h"
#include "op/record.h"
#include "ops/math/elementwise.h"
#include "ops/math/in_float32.h"
#include "ops/op_list.h"
#include "ops/random/distributions.h"
#include "runtime/dispatch.h"
#include "runtime/generator.h"
#include "runtime/replica_context.h"
#include "tandem/nn.h"

namespace tandem {
namespace {

// Enough blocks for any offset.
Shape mask_shape(const Shape& data) {
  return Shape({dim::sum(dim::floor_quotient(dim::num_elements(data), kDropoutBlock), 2)});
}

void check_rate(const InferContext& c, double rate) {
  if (!(rate >= 0.0 && rate < 1.0))
    fail<InvalidArgumentError>("[{}] expected a rate in [0, 1), got {}", c.op().name, rate);
}

void infer_dropout(InferContext& c) {
  check_dtype(c.op().name, kFloating, c.dtype(0));
  check_rate(c, c.attrs<DropoutAttrs>().rate);
  c.attrs<DropoutAttrs>().check_offset(c.op().name);
  c.add_output(c.dtype(0), c.shape(0));
  c.add_output(int64, mask_shape(c.shape(0)));
}

// Calls body(block, first, begin, end) for the blocks: the elements [begin, end) of the tensor are
// those from `first` on in the block.
template <class Body>
void for_dropout_blocks(const DropoutBlocks& blocks, std::int64_t size, const Body& body) {
  parallel_for(blocks.count, kElementwiseGrain / kDropoutBlock,
               [&](std::int64_t block, std::int64_t last) {
                 for (; block < last; ++block) {
                   const std::int64_t at = block * kDropoutBlock - blocks.skipped;
                   const std::int64_t begin = std::max<std::int64_t>(at, 0);
                   body(block, begin - at, begin, std::min(at + kDropoutBlock, size));
                 }
               });
}

// The mask of a block: bit i is set if words[i] keeps its element.
TANDEM_MULTIVERSION std::uint64_t mask_of(const std::uint32_t* words, std::uint32_t threshold) {
  std::uint32_t halves[] = {0, 0};
  for (int half = 0; half < 2; ++half)
    for (unsigned i = 0; i < 32; ++i)
      halves[half] |= (words[32 * half + static_cast<int>(i)] >= threshold ? 1u : 0u) << i;
  return std::uint64_t{halves[1]} << 32 | halves[0];
}

// y = scaled x where the mask has a bit, else 0, for `count` elements from bit `first` on. y may be
// x (GCC ivdep).
template <class C>
TANDEM_INLINED void apply_mask(std::uint64_t mask, std::int64_t first, const C* x, C* y,
                               std::int64_t count, C scale) {
  if (count == kDropoutBlock) {
    for (int half = 0; half < 2; ++half, x += 32, y += 32) {
      const auto bits = static_cast<std::uint32_t>(mask >> 32 * half);
#pragma GCC ivdep
      for (unsigned i = 0; i < 32; ++i) y[i] = (bits >> i & 1u) != 0 ? x[i] * scale : C(0);
    }
    return;
  }
  mask >>= first;
  for (std::int64_t i = 0; i < count; ++i, mask >>= 1)
    y[i] = (mask & 1u) != 0 ? x[i] * scale : C(0);
}

template <class T>
void drop_block(std::uint64_t mask, std::int64_t first, const T* x, T* y, std::int64_t count,
                double scale) {
  if constexpr (is_16_bit_floating<T>) {
    alignas(64) float wide[kDropoutBlock];
    widen(x, wide, count);
    run_loop<T, apply_mask<float>>(mask, first, wide, wide, count, static_cast<float>(scale));
    narrow(wide, y, count);
  } else {
    run_loop<T, apply_mask<T>>(mask, first, x, y, count, static_cast<T>(scale));
  }
}

void dropout_kernel(KernelContext& c) {
  const InFloat32 in_float32(c);
  const auto& attrs = c.attrs<DropoutAttrs>();
  const RandomKey random_key = attrs.random_key();
  const std::uint32_t threshold = attrs.threshold();
  const TensorView &x = c.inputs[0], &mask = c.outputs[1];
  const DropoutBlocks blocks(attrs.offset, x.size());
  auto* masks = mask.as<std::uint64_t>();
  std::fill(masks + blocks.count, masks + mask.size(), 0);
  switch_floating(x.dtype, [&]<class T>(TypeTag<T>) {
    for_dropout_blocks(
        blocks, x.size(),
        [&](std::int64_t block, std::int64_t first, std::int64_t begin, std::int64_t end) {
          alignas(64) Words words;
          fill_words(random_key, blocks.first + block, words);
          masks[block] = mask_of(&words[0][0], threshold);
          drop_block(masks[block], first, x.as<const T>() + begin, c.outputs[0].as<T>() + begin,
                     end - begin, attrs.scale());
        });
  });
}

void dropout_gradient(GradContext& c) {
  const auto& attrs = c.attrs<DropoutAttrs>();
  const Tensor mask = c.output(1);
  const std::int64_t blocks = dim::floor_quotient(attrs.offset, kDropoutBlock),
                     skipped = dim::difference(attrs.offset, dim::product(blocks, kDropoutBlock));
  c.set_grad(0, run_in_place(kDropoutGrad, c.take_grad(), {&mask},
                             DropoutGradAttrs{.rate = attrs.rate, .skipped = skipped}));
}

// --- its gradient: inputs dy and the mask; output dx ---

void infer_dropout_grad(InferContext& c) {
  const auto& attrs = c.attrs<DropoutGradAttrs>();
  check_dtype(c.op().name, kFloating, c.dtype(0));
  check_rate(c, attrs.rate);
  if (!dim::may_be_at_most(0, attrs.skipped) ||
      !dim::may_be_at_most(attrs.skipped, kDropoutBlock - 1))
    fail<InvalidArgumentError>("[{}] expected 0 to {} skipped elements, got {}", c.op().name,
                               kDropoutBlock - 1, dim::text(attrs.skipped));
  if (c.dtype(1) != int64 || !dim::may_equal(c.shape(1), mask_shape(c.shape(0))))
    fail<InvalidArgumentError>("[{}] expected a mask of dtype int64 and shape {}, got {} {}",
                               c.op().name, mask_shape(c.shape(0)).to_string(), name_of(c.dtype(1)),
                               c.shape(1).to_string());
  c.add_output(c.dtype(0), c.shape(0));
}

void dropout_grad_kernel(KernelContext& c) {
  const InFloat32 in_float32(c);
  const auto& attrs = c.attrs<DropoutGradAttrs>();
  const TensorView& dy = c.inputs[0];
  const auto* masks = c.inputs[1].as<const std::uint64_t>();
  switch_floating(dy.dtype, [&]<class T>(TypeTag<T>) {
    for_dropout_blocks(
        DropoutBlocks(attrs.skipped, dy.size()), dy.size(),
        [&](std::int64_t block, std::int64_t first, std::int64_t begin, std::int64_t end) {
          drop_block(masks[block], first, dy.as<const T>() + begin, c.outputs[0].as<T>() + begin,
                     end - begin, attrs.scale());
        });
  });
}

void dropout_grad_gradient(GradContext& c) {
  c.set_grad(0, run(kDropoutGrad, {&c.grad(), &c.input(1)}, c.attrs<DropoutGradAttrs>()));
}

}  // namespace

const OpDef kDropout = {.name = "Dropout",
                        .attrs = &attrs_type<DropoutAttrs>,
                        .infer = infer_dropout,
                        .gradient = dropout_gradient,
                        .cpu_kernel = dropout_kernel,
                        .traits = kStateful | kInPlace,
                        .saved_outputs = 0b10,
                        .exchange_key = exchange_key<DropoutAttrs>};
const OpDef kDropoutGrad = {.name = "DropoutGrad",
                            .attrs = &attrs_type<DropoutGradAttrs>,
                            .infer = infer_dropout_grad,
                            .gradient = dropout_grad_gradient,
                            .cpu_kernel = dropout_grad_kernel,
                            .traits = kInPlace,
                            .saved_inputs = 0b10};

OpList dropout_ops() { return list_of<kDropout, kDropoutGrad>(); }

void DropoutAttrs::check_offset(std::string_view op) const {
  if (!dim::may_be_at_most(0, offset) || !dim::may_be_at_most(offset, kMaxElements))
    fail<InvalidArgumentError>("[{}] expected an offset in [0, {}], got {}", op, kMaxElements,
                               dim::text(offset));
}

DropoutAttrs next_dropout(double rate, const Shape& shape) {
  const RandomKey random_key = Generator::current().next();
  DropoutAttrs attrs{.rate = rate,
                     .seed = random_key.seed,
                     .number = random_key.number,
                     .stream = random_key.stream};
  const ReplicaContext* replica = ReplicaContext::current();
  if (replica && replica->example_offset() >= 0 && shape.rank() > 0) {
    attrs.stream = 0;  // positions in the global batch differ between replicas already
    attrs.offset =
        dim::product(replica->example_offset(), dim::num_elements(shape.without_leading(1)));
  }
  return attrs;
}

Tensor run_dropout(const Tensor& x, const DropoutAttrs& attrs) {
  const Tensor* input = &x;
  return std::move(run_op(kDropout, {&input, 1}, attrs)[0]);
}

Tensor nn::dropout(const Tensor& x, double rate) {
  return run_dropout(x, next_dropout(rate, x.shape()));
}

}  // namespace tandem
