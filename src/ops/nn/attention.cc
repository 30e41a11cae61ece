// Scaled dot-product attention: A. Vaswani et al., "Attention is all you need", 2017; computed tile
// by tile, after T. Dao et al., "FlashAttention", 2022 (attention_kernel.cc, attention_grad.cc).
#include "ops/nn/attention.h"

#include <cmath>
#include <limits>
#include <vector>

#include "core/status.h"
#include "op/record.h"
#include "ops/math/broadcast.h"
#include "ops/math/element_count.h"
#include "ops/math/elementwise.h"
#include "ops/nn/norm_math.h"
#include "ops/op_list.h"
#include "runtime/dispatch.h"
#include "runtime/generator.h"
#include "tandem/array.h"
#include "tandem/creation.h"
#include "tandem/math.h"
#include "tandem/nn.h"

namespace tandem {
namespace {

// query, key and value are inputs `first`, `first` + 1 and `first` + 2.
void check_operands(InferContext& c, int first) {
  const std::string_view op = c.op().name;
  const Shape &query = c.shape(first), &key = c.shape(first + 1), &value = c.shape(first + 2);
  const auto shapes = [&] {
    return fmt::format("{}, {} and {}", query.to_string(), key.to_string(), value.to_string());
  };
  check_dtype(op, kFloating, c.dtype(first));
  if (c.dtype(first + 1) != c.dtype(first) || c.dtype(first + 2) != c.dtype(first))
    fail<DTypeError>("[{}] expected query, key and value of one dtype, got {}, {} and {}", op,
                     name_of(c.dtype(first)), name_of(c.dtype(first + 1)),
                     name_of(c.dtype(first + 2)));
  if (query.rank() != 4 || key.rank() != 4 || value.rank() != 4)
    fail<InvalidArgumentError>(
        "[{}] expected query, key and value of shape (batch, positions, heads, depth), got {}", op,
        shapes());
  const AttentionSizes s(query, key, value);
  if (!dim::may_equal(key.word(0), s.batch) || !dim::may_equal(value.word(0), s.batch))
    fail<ShapeError>("[{}] expected one batch size, got shapes {}", op, shapes());
  if (!dim::may_equal(value.word(1), s.keys) || !dim::may_equal(value.word(2), s.kv_heads))
    fail<InvalidArgumentError>(
        "[{}] expected key and value with the same positions and heads, got {}", op, shapes());
  if (!dim::may_equal(key.word(3), s.depth) || s.depth == 0 || s.value_depth == 0)
    fail<InvalidArgumentError>("[{}] expected query and key of the same nonzero depth, got {}", op,
                               shapes());
  if (!dim::may_be_multiple(s.heads, s.kv_heads))
    fail<InvalidArgumentError>(
        "[{}] expected a number of query heads that the key heads divide, got {} and {}", op,
        dim::text(s.heads), dim::text(s.kv_heads));
}

Shape scores_shape(const AttentionSizes& s) { return {s.batch, s.heads, s.queries, s.keys}; }

void check_mask(InferContext& c, int input, const AttentionSizes& s) {
  if (c.num_inputs() <= input) return;
  const Shape &mask = c.shape(input), scores = scores_shape(s);
  bool broadcasts = mask.rank() <= 4;
  for (int i = 1; broadcasts && i <= mask.rank(); ++i)
    broadcasts = dim::may_equal(mask.word(-i), 1) || dim::may_equal(mask.word(-i), scores.word(-i));
  if (!broadcasts)
    fail<ShapeError>("[{}] expected a mask that broadcasts to {}, got shape {}", c.op().name,
                     scores.to_string(), mask.to_string());
  const DType data = c.dtype(0), dtype = c.dtype(input);
  if (dtype != bool_ && dtype != data)
    fail<DTypeError>("[{}] expected a mask of dtype bool or {}, got {}", c.op().name, name_of(data),
                     name_of(dtype));
}

void check_attrs(InferContext& c) {
  const auto& attrs = c.attrs<AttentionAttrs>();
  if (!(attrs.rate >= 0.0 && attrs.rate < 1.0))
    fail<InvalidArgumentError>("[{}] expected a dropout rate in [0, 1), got {}", c.op().name,
                               attrs.rate);
  attrs.check_offset(c.op().name);
  if (!std::isfinite(attrs.softmax_scale))
    fail<InvalidArgumentError>("[{}] expected a finite scale, got {}", c.op().name,
                               attrs.softmax_scale);
  if (!dim::may_be_at_most(0, attrs.depth))
    fail<InvalidArgumentError>("[{}] expected a depth of 0 or more, got {}", c.op().name,
                               attrs.depth);
}

void infer_attention(InferContext& c) {
  check_operands(c, 0);
  check_attrs(c);
  const AttentionSizes s(c.shape(0), c.shape(1), c.shape(2));
  check_mask(c, 3, s);
  c.add_output(c.dtype(0), {s.batch, s.queries, s.heads, s.value_depth});
  c.add_output(statistics_dtype(c.dtype(0)), {s.batch, s.heads, s.queries});
}

void infer_attention_grad(InferContext& c) {
  check_operands(c, 1);
  check_attrs(c);
  const AttentionSizes s(c.shape(1), c.shape(2), c.shape(3));
  const Shape result{s.batch, s.queries, s.heads, s.value_depth};
  for (int input : {0, 4})
    if (!dim::may_equal(c.shape(input), result) || c.dtype(input) != c.dtype(1))
      fail<InvalidArgumentError>("[{}] expected a result and its gradient, {} {}, got {} {}",
                                 c.op().name, name_of(c.dtype(1)), result.to_string(),
                                 name_of(c.dtype(input)), c.shape(input).to_string());
  const Shape rows{s.batch, s.heads, s.queries};
  if (!dim::may_equal(c.shape(5), rows) || c.dtype(5) != statistics_dtype(c.dtype(1)))
    fail<InvalidArgumentError>("[{}] expected one log-sum per row, {}, got {} {}", c.op().name,
                               rows.to_string(), name_of(c.dtype(5)), c.shape(5).to_string());
  check_mask(c, 6, s);
  for (int input : {1, 2, 3}) c.add_output(c.dtype(input), c.shape(input));
}

// --- gradients composed of operations, for second order and for the gradient of a mask ---

// The kernels accumulate in float32, so this computes in float32.
Tensor widened(const Tensor& x) { return cast(x, statistics_dtype(x.dtype())); }

// Transposes [batch, positions, heads, depth] to [batch, kv_heads, group, positions, depth], where
// a group is the heads that share a key head.
Tensor heads_first(const Tensor& x, std::int64_t kv_heads) {
  const Shape& shape = x.shape();
  return transpose(reshape(widened(x), {shape.word(0), shape.word(1), kv_heads,
                                        dim::quotient(shape.word(2), kv_heads), shape.word(3)}),
                   {0, 2, 3, 1, 4});
}
Tensor heads_last(const Tensor& x, const TensorType& like) {
  return cast(reshape(transpose(x, {0, 3, 1, 2, 4}), like.shape), like.dtype);
}

// x times the scale, whose depth may be unknown until a graph runs.
Tensor scaled_by(const AttentionAttrs& attrs, const Tensor& x) {
  if (!dim::is_unknown(attrs.depth)) return x * attrs.score_scale();
  return x * cast(divide(1.0, sqrt(element_count({attrs.depth}, float64))), x.dtype());
}

// The scores [batch, heads, queries, keys], and where a query may attend to a key. `allowed` is
// undefined if there is no such mask.
struct Scores {
  Tensor scores, allowed;
};
Scores masked_scores(const AttentionAttrs& attrs, const Tensor& scores, const Tensor* mask) {
  Scores result{scores, {}};
  const auto allow = [&](const Tensor& where) {
    result.allowed = result.allowed.defined() ? logical_and(result.allowed, where) : where;
  };
  if (mask && mask->dtype() == bool_) {
    allow(*mask);
  } else if (mask) {
    result.scores = scores + widened(*mask);
    allow(logical_not(equal(result.scores, -std::numeric_limits<double>::infinity())));
  }
  if (attrs.causal) {
    const Shape& shape = scores.shape();
    allow(greater_equal(expand_dims(range(shape.word(2)), 1), range(shape.word(3))));
  }
  // A large finite number instead of -inf, so that a row without any key has no NaN.
  if (result.allowed.defined())
    result.scores =
        where(result.allowed, result.scores, full({}, -1e30, {.dtype = scores.dtype()}));
  return result;
}

void composed_gradient(GradContext& c) {
  const auto& attrs = c.attrs<AttentionAttrs>();
  const Tensor* mask = c.num_inputs() == 4 ? &c.input(3) : nullptr;
  const AttentionSizes s(c.input_spec(0).shape, c.input_spec(1).shape, c.input_spec(2).shape);
  const Shape grouped{s.batch, s.kv_heads, dim::quotient(s.heads, s.kv_heads), s.queries, s.keys},
      flat = scores_shape(s);
  const Tensor query = heads_first(c.input(0), s.kv_heads),
               key = heads_first(c.input(1), s.kv_heads),
               value = heads_first(c.input(2), s.kv_heads), dy = heads_first(c.grad(), s.kv_heads);
  const auto dropped = [&](const Tensor& x) {
    return attrs.rate > 0.0 ? run_dropout(x, attrs) : x;
  };
  const Tensor products = scaled_by(attrs, matmul(query, key, {.transpose_b = true}));
  const auto [scores, allowed] = masked_scores(attrs, reshape(products, flat), mask);
  Tensor weights = nn::softmax(scores);
  if (allowed.defined()) weights = where(allowed, weights, zeros({}, {.dtype = weights.dtype()}));
  if (c.needs_grad(2)) {
    const Tensor dvalue = matmul(reshape(dropped(weights), grouped), dy, {.transpose_a = true});
    c.set_grad(2, heads_last(reduce_sum(dvalue, {.axis = {2}, .keepdims = true}), c.input_spec(2)));
  }
  const Tensor dweights = dropped(reshape(matmul(dy, value, {.transpose_b = true}), flat));
  const Tensor dscores =
      weights * (dweights - reduce_sum(dweights * weights, {.axis = Dims{-1}, .keepdims = true}));
  const Tensor dproducts = scaled_by(attrs, reshape(dscores, grouped));
  if (c.needs_grad(0)) c.set_grad(0, heads_last(matmul(dproducts, key), c.input_spec(0)));
  if (c.needs_grad(1)) {
    const Tensor dkey = matmul(dproducts, query, {.transpose_a = true});
    c.set_grad(1, heads_last(reduce_sum(dkey, {.axis = {2}, .keepdims = true}), c.input_spec(1)));
  }
  if (mask && c.needs_grad(3))
    c.set_grad(3, cast(sum_to_shape(dscores, mask->shape()), mask->dtype()));
}

void attention_gradient(GradContext& c) {
  const bool masked = c.num_inputs() == 4;
  if (context.records || (masked && c.needs_grad(3))) return composed_gradient(c);
  const auto& attrs = c.attrs<AttentionAttrs>();
  const Tensor result = c.output(0), log_sums = c.output(1);
  std::vector<const Tensor*> inputs = {&c.grad(),   &c.input(0), &c.input(1),
                                       &c.input(2), &result,     &log_sums};
  if (masked) inputs.push_back(&c.input(3));
  const std::vector<Tensor> grads =
      run_op(attrs.rate > 0.0 ? kAttentionDropoutGrad : kAttentionGrad, inputs, attrs);
  for (int i = 0; i < 3; ++i)
    if (c.needs_grad(i)) c.set_grad(i, grads[static_cast<std::size_t>(i)]);
}

}  // namespace

const OpDef kAttention = {.name = "ScaledDotProductAttention",
                          .attrs = &attrs_type<AttentionAttrs>,
                          .infer = infer_attention,
                          .gradient = attention_gradient,
                          .cpu_kernel = attention_kernel,
                          .autocast = kAutocastLower,
                          .saved_inputs = 0b1111,
                          .saved_outputs = 0b11};
// Has no gradient: a backward pass that is itself recorded is composed of differentiable
// operations.
const OpDef kAttentionGrad = {.name = "ScaledDotProductAttentionGrad",
                              .attrs = &attrs_type<AttentionAttrs>,
                              .infer = infer_attention_grad,
                              .cpu_kernel = attention_grad_kernel};
// The same with dropout, so that two runs differ.
const OpDef kAttentionDropout = {.name = "ScaledDotProductAttentionDropout",
                                 .attrs = &attrs_type<AttentionAttrs>,
                                 .infer = infer_attention,
                                 .gradient = attention_gradient,
                                 .cpu_kernel = attention_kernel,
                                 .traits = kStateful,
                                 .autocast = kAutocastLower,
                                 .saved_inputs = 0b1111,
                                 .saved_outputs = 0b11,
                                 .exchange_key = exchange_key<AttentionAttrs>};
const OpDef kAttentionDropoutGrad = {.name = "ScaledDotProductAttentionDropoutGrad",
                                     .attrs = &attrs_type<AttentionAttrs>,
                                     .infer = infer_attention_grad,
                                     .cpu_kernel = attention_grad_kernel,
                                     .traits = kStateful,
                                     .exchange_key = exchange_key<AttentionAttrs>};

OpList attention_ops() {
  return list_of<kAttention, kAttentionGrad, kAttentionDropout, kAttentionDropoutGrad>();
}

Tensor nn::scaled_dot_product_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                        const AttentionOptions& options) {
  AttentionAttrs attrs;
  attrs.causal = options.causal;
  if (options.scale)
    attrs.softmax_scale = *options.scale;
  else if (query.rank() == 4)
    attrs.depth = query.shape().word(3);
  const bool drops = options.dropout_rate != 0.0;
  attrs.rate = options.dropout_rate;
  if (drops && query.rank() == 4 && key.rank() == 4)
    static_cast<DropoutAttrs&>(attrs) = next_dropout(
        options.dropout_rate,
        {query.shape().word(0), query.shape().word(2), query.shape().word(1), key.shape().word(1)});
  std::vector<const Tensor*> inputs = {&query, &key, &value};
  if (options.mask.defined()) inputs.push_back(&options.mask);
  return std::move(run_op(drops ? kAttentionDropout : kAttention, inputs, attrs)[0]);
}

}  // namespace tandem
