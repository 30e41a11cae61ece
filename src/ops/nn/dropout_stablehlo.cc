// Dropout in StableHLO. The mask has bit i % 64 of word i / 64 for element i of the tensor: unlike
// the kernels' mask, it does not depend on the tensor's position in the global batch, so that all
// replicas run one program.
#include "ops/nn/dropout_stablehlo.h"

#include "ops/lowering_support.h"
#include "ops/nn/dropout.h"
#include "ops/random/philox_stablehlo.h"

namespace tandem::stablehlo {

Value kept_elements(Context& c, std::uint32_t threshold, std::int64_t count) {
  Builder& b = c.build;
  const KeyValues key = c.key();
  const Value block = b.integer(kDropoutBlock, {Element::kU64, Shape::scalar()});
  const Value words = random_words(b, key, b.divide(key.offset, block), count / kDropoutBlock + 2);
  const Value flat = b.reshape(words, Shape{words.shape().num_elements()});
  const Value skipped = b.convert(b.binary("remainder", key.offset, block), Element::kI64);
  const Value mine =
      b.add("dynamic_slice", std::array{flat, skipped}, "slice_sizes = " + array_text(Axes{count}),
            {flat.element(), Shape{count}});
  return b.compare("GE", mine, b.integer(threshold, mine.type));
}

namespace {

constexpr std::int64_t kBits = 64;
static_assert(kBits == kDropoutBlock);

// Bits as words of 64.
Value packed(Context& c, const Value& kept) {
  Builder& b = c.build;
  const std::int64_t words = c.output(1).shape.word(0);
  const Value none = b.constant(0.0, {Element::kBool, Shape::scalar()});
  const Value all = b.pad(kept, none, {0}, {words * kBits - kept.shape().word(0)});
  const Value bits = b.convert(b.reshape(all, {words, kBits}), Element::kI64);
  const Value placed = b.binary("shift_left", bits, b.iota(bits.type, 1));
  return b.sum(placed, {1});
}

Value unpacked(Context& c, const Value& mask, std::int64_t count) {
  Builder& b = c.build;
  const Shape shape{mask.shape().word(0), kBits};
  const Value repeated = b.broadcast(mask, shape, {0});
  const Value moved = b.binary("shift_right_logical", repeated, b.iota(repeated.type, 1));
  const Value bit = b.binary("and", moved, b.integer(1, moved.type));
  const Value flat = b.reshape(bit, Shape{shape.num_elements()});
  const Value mine = b.slice(flat, {0}, {count});
  return b.compare("NE", mine, b.integer(0, mine.type));
}

void drop(Context& c, const Value& kept, double scale) {
  const Expression x = widened(c, 0);
  const Expression keeps(c.build, c.build.reshape(kept, x.shape()));
  finish(c, (x * scale).where(keeps, x.like(0.0)));
}

void lower_dropout(Context& c) {
  const auto& attrs = c.attrs<DropoutAttrs>();
  const Value kept = kept_elements(c, attrs.threshold(), c.output().shape.num_elements());
  drop(c, kept, attrs.scale());
  c.result(1, packed(c, kept));
}

void lower_dropout_grad(Context& c) {
  drop(c, unpacked(c, c.input(1), c.output().shape.num_elements()),
       c.attrs<DropoutGradAttrs>().scale());
}

constexpr Lowering kDropoutLowerings[] = {
    {"Dropout", lower_dropout},
    {"DropoutGrad", lower_dropout_grad},
};

}  // namespace

LoweringList dropout_lowerings() { return kDropoutLowerings; }

}  // namespace tandem::stablehlo
