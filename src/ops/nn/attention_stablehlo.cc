// Scaled dot-product attention in StableHLO.
#include <limits>
#include <optional>

#include "ops/lowering_support.h"
#include "ops/nn/attention.h"
#include "ops/nn/dropout_stablehlo.h"

namespace tandem::stablehlo {
namespace {

constexpr double kInfiniteScore = std::numeric_limits<double>::infinity();

// The operands, as [batch, kv_heads, group, positions, depth]; keys and values have no group.
class Attention {
 public:
  // Query, key and value are inputs `first` and the next two, a mask input `mask` if there is one.
  Attention(Context& c, std::size_t first, std::size_t mask)
      : c_(c),
        sizes(c.input(first).shape(), c.input(first + 1).shape(), c.input(first + 2).shape()),
        query_(by_head(c.input(first))),
        key_(heads_first(c.input(first + 1))),
        value_(heads_first(c.input(first + 2))) {
    if (c.num_inputs() > mask) mask_ = c.input(mask);
  }

  const Value& query() const { return query_; }
  const Value& key() const { return key_; }
  const Value& value() const { return value_; }

  // [batch, positions, heads, depth] -> [batch, kv_heads, group, positions, depth].
  Value by_head(const Value& x) const {
    const Shape& s = x.shape();
    const Value grouped = c_.build.reshape(
        widened(c_, x).value(), {s.word(0), s.word(1), sizes.kv_heads, sizes.group(), s.word(3)});
    return c_.build.transpose(grouped, {0, 2, 3, 1, 4});
  }
  // The opposite, as an output.
  void finish_by_head(std::size_t output, const Value& x) const {
    finish(c_, output, c_.build.transpose(x, {0, 3, 1, 2, 4}));
  }
  void finish_heads_first(std::size_t output, const Value& x) const {
    finish(c_, output, c_.build.transpose(x, {0, 2, 1, 3}));
  }

  // The scores [batch, heads, queries, keys]; -inf where a query may not attend to a key.
  Expression scores() const {
    Expression scores(c_.build, flat(product_with_keys(query_, key_, 4, 3)));
    scores = scores * c_.attrs<AttentionAttrs>().score_scale();
    if (mask_) scores = masked(scores);
    if (!c_.attrs<AttentionAttrs>().causal) return scores;
    const Type index(Element::kI64, scores.shape());
    const Expression visible(
        c_.build, c_.build.compare("GE", c_.build.iota(index, 2), c_.build.iota(index, 3)));
    return scores.where(visible, scores.like(-kInfiniteScore));
  }

  // [batch, kv_heads, group, queries, a] x [batch, kv_heads, keys, a] -> [.., queries, keys].
  Value product_with_keys(const Value& a, const Value& b, std::int64_t axis_a,
                          std::int64_t axis_b) const {
    return c_.build.dot(
        a, b,
        {.batch_a = {0, 1}, .batch_b = {0, 1}, .contracted_a = {axis_a}, .contracted_b = {axis_b}},
        a.element());
  }
  // [.., group, queries, keys] and [.., group, queries, depth] -> [batch, kv_heads, keys, depth].
  Value sum_over_queries(const Value& weights, const Value& x) const {
    return c_.build.dot(
        weights, x,
        {.batch_a = {0, 1}, .batch_b = {0, 1}, .contracted_a = {2, 3}, .contracted_b = {2, 3}},
        x.element());
  }

  Shape flat_shape() const { return {sizes.batch, sizes.heads, sizes.queries, sizes.keys}; }
  Value flat(const Value& x) const { return c_.build.reshape(x, flat_shape()); }
  Value grouped(const Value& x) const {
    return c_.build.reshape(
        x, {sizes.batch, sizes.kv_heads, sizes.group(), sizes.queries, sizes.keys});
  }
  // A value per row of scores.
  static Expression along_rows(const Expression& rows, const Expression& scores) {
    return scores.repeat(rows.value(), {0, 1, 2});
  }

  // Dropout of the weights of the global batch.
  Expression dropped(const Expression& weights) const {
    const auto& attrs = c_.attrs<AttentionAttrs>();
    if (attrs.rate == 0.0) return weights;
    if (!kept_) kept_ = flat(kept_elements(c_, attrs.threshold(), flat_shape().num_elements()));
    return (weights * attrs.scale()).where({c_.build, *kept_}, weights.like(0.0));
  }

 private:
  // [batch, positions, kv_heads, depth] -> [batch, kv_heads, positions, depth].
  Value heads_first(const Value& x) const {
    return c_.build.transpose(widened(c_, x).value(), {0, 2, 1, 3});
  }

  Expression masked(const Expression& scores) const {
    if (mask_->element() == Element::kBool)
      return scores.where(scores.repeat(*mask_), scores.like(-kInfiniteScore));
    return scores + scores.repeat(widened(c_, *mask_).value());
  }

  Context& c_;

 public:
  const AttentionSizes sizes;

 private:
  Value query_, key_, value_;
  std::optional<Value> mask_;
  mutable std::optional<Value> kept_;
};

void lower_attention(Context& c) {
  const Attention attention(c, 0, 3);
  const Expression scores = attention.scores();
  const Value least = c.build.constant(-kInfiniteScore, {scores.element(), Shape::scalar()});
  const Expression largest(c.build, c.build.reduce("maximum", scores.value(), least, {3}));
  // A row without visible keys has the weights 0.
  const Expression none = largest.like(0.0);
  const Expression offset =
      none.where(largest.compare("EQ", largest.like(-kInfiniteScore)), largest);
  const Expression weights = exp(scores - Attention::along_rows(offset, scores));
  const Expression sums = weights.sum({3});
  const Expression blind = sums.compare("EQ", sums.like(0.0));
  const Expression scale = none.where(blind, 1.0 / sums);
  const Expression used = attention.dropped(weights) * Attention::along_rows(scale, weights);
  attention.finish_by_head(
      0, attention.product_with_keys(attention.grouped(used.value()), attention.value(), 4, 2));
  finish(c, 1, largest.like(kInfiniteScore).where(blind, largest + log(sums)).value());
}

// Inputs: the result's gradient, query, key, value, the result, log-sums, and optionally a mask.
void lower_attention_grad(Context& c) {
  const Attention attention(c, 1, 6);
  const double softmax_scale = c.attrs<AttentionAttrs>().score_scale();
  const Value dy = attention.by_head(c.input(0));
  const Expression scores = attention.scores();
  const Expression weights = exp(scores - Attention::along_rows(widened(c, 5), scores));
  const Value used = attention.grouped(attention.dropped(weights).value());
  const Expression dweights = attention.dropped(
      {c.build, attention.flat(attention.product_with_keys(dy, attention.value(), 4, 3))});
  // sum(dy y) per row equals the sum of the weights times their gradients.
  const Expression products = widened(c, 0) * widened(c, 4);
  const Value delta = c.build.transpose(products.sum({3}).value(), {0, 2, 1});
  const Expression dscores =
      weights * (dweights - Attention::along_rows({c.build, delta}, weights)) * softmax_scale;
  const Value grouped = attention.grouped(dscores.value());
  attention.finish_by_head(0, attention.product_with_keys(grouped, attention.key(), 4, 2));
  attention.finish_heads_first(1, attention.sum_over_queries(grouped, attention.query()));
  attention.finish_heads_first(2, attention.sum_over_queries(used, dy));
}

constexpr Lowering kAttentionLowerings[] = {
    {"ScaledDotProductAttention", lower_attention},
    {"ScaledDotProductAttentionDropout", lower_attention},
    {"ScaledDotProductAttentionDropoutGrad", lower_attention_grad},
    {"ScaledDotProductAttentionGrad", lower_attention_grad},
};

}  // namespace

LoweringList attention_lowerings() { return kAttentionLowerings; }

}  // namespace tandem::stablehlo
