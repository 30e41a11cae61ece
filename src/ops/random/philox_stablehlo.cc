#include "ops/random/philox_stablehlo.h"

#include <array>

#include "ops/random/words.h"

namespace tandem::stablehlo {
namespace {

Value shifted(Builder& build, std::string_view operation, const Value& x, std::uint64_t by) {
  return build.binary(operation, x, build.integer(by, x.type));
}

// The product of 32-bit words as its high and low word.
struct Product {
  Value high, low;
  Product(Builder& build, const Value& words, std::uint32_t by)
      : Product(build, build.multiply(build.convert(words, Element::kU64),
                                      build.integer(by, {Element::kU64, words.shape()}))) {}

 private:
  Product(Builder& build, const Value& product)
      : high(high_half(build, product)), low(low_half(build, product)) {}
};

}  // namespace

Value low_half(Builder& build, const Value& wide) { return build.convert(wide, Element::kU32); }
Value high_half(Builder& build, const Value& wide) {
  return build.convert(shifted(build, "shift_right_logical", wide, 32), Element::kU32);
}

Value random_words(Builder& build, const KeyValues& key, const Value& first, std::int64_t blocks) {
  const Shape counters{blocks, kColumns};
  const Type words(Element::kU32, counters), wide(Element::kU64, counters);
  const auto repeated = [&](const Value& scalar) { return build.broadcast(scalar, counters, {}); };
  const auto exclusive_or = [&](const Value& a, const Value& b, const Value& c) {
    return build.binary("xor", build.binary("xor", a, b), c);
  };
  const Value blocks_before = build.multiply(build.add(repeated(first), build.iota(wide, 0)),
                                             build.integer(kColumns, wide));
  const Value counter = build.add(blocks_before, build.iota(wide, 1));
  const Value stream = shifted(build, "shift_left", low_half(build, key.stream), 16);

  Value c0 = low_half(build, counter);
  Value c1 = build.binary("xor", high_half(build, counter), repeated(stream));
  Value c2 = repeated(low_half(build, key.number)), c3 = repeated(high_half(build, key.number));
  Value k0 = repeated(low_half(build, key.seed)), k1 = repeated(high_half(build, key.seed));
  for (int round = 0; round < 10; ++round) {
    const Product p0(build, c0, kPhiloxM0), p1(build, c2, kPhiloxM1);
    c0 = exclusive_or(p1.high, c1, k0);
    c2 = exclusive_or(p0.high, c3, k1);
    c1 = p1.low;
    c3 = p0.low;
    k0 = build.add(k0, build.integer(kPhiloxW0, words));
    k1 = build.add(k1, build.integer(kPhiloxW1, words));
  }
  const Shape row{blocks, 1, kColumns};
  return build.concatenate(std::array{build.reshape(c0, row), build.reshape(c1, row),
                                      build.reshape(c2, row), build.reshape(c3, row)},
                           1);
}

}  // namespace tandem::stablehlo
