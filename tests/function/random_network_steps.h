// Further steps of random programs: products, images, normalisations, attention, losses, creation,
// random numbers and control flow.
#pragma once

#include "function/random_steps.h"

namespace tandem::testing {

inline constexpr nn::Activation kActivations[] = {
    nn::Activation::kLinear, nn::Activation::kRelu,    nn::Activation::kRelu6,
    nn::Activation::kElu,    nn::Activation::kGelu,    nn::Activation::kSwish,
    nn::Activation::kTanh,   nn::Activation::kSigmoid, nn::Activation::kLeakyRelu,
    nn::Activation::kSelu,   nn::Activation::kSoftplus};

inline nn::Activation activation(Choices& choices) {
  return kActivations[choices.pick(std::size(kActivations))];
}

inline Tensor product_step(Choices& choices, const Tensor& x, const Tensor& y) {
  const std::int64_t width = 1 + choices.pick(6);
  if (x.rank() < 2) return matmul(shaped(x, {3, width}), shaped(y, {width, 2}));
  const std::int64_t depth = x.dim(-1);
  const Tensor weights = shaped(y, {depth, width}), bias = shaped(y, {width});
  switch (choices.pick(7)) {
    case 0: return matmul(x, x, {.transpose_b = true});
    case 1: return matmul(x, x, {.transpose_a = true});
    case 2: return matmul(x, weights);
    case 3: return nn::dense(x, weights, bias, activation(choices));
    case 4: return nn::dense(x, weights, {}, activation(choices));
    case 5: return nn::bias_add(x, shaped(y, {depth}));
    default: return matmul(shaped(x, {2, 3, 4, 5}), shaped(y, {2, 1, 5, 2}));
  }
}

inline Tensor image_step(Choices& choices, const Tensor& x, const Tensor& y) {
  const std::int64_t channels = choices.pick(2) == 0 ? 2 : 4, outputs = 4;
  const Tensor image = shaped(tanh(x), {2, 5 + choices.pick(3), 6, channels});
  nn::Conv2DOptions options{
      .strides = 1 + choices.pick(2),
      .padding = choices.pick(2) == 0 ? nn::Padding::kSame : nn::Padding::kValid,
      .activation = activation(choices)};
  const nn::Pool2DOptions pool{
      .window = 1 + choices.pick(3), .strides = 1 + choices.pick(2), .padding = options.padding};
  const Tensor bias = choices.pick(2) == 0 ? shaped(y, {outputs}) : Tensor();
  switch (choices.pick(8)) {
    case 0: return nn::conv2d(image, shaped(y, {3, 3, channels, outputs}), bias, options);
    case 1: return nn::conv2d(image, shaped(y, {1, 1, channels, outputs}), bias, options);
    case 2:
      options.groups = 2;
      return nn::conv2d(image, shaped(y, {3, 2, channels / 2, outputs}), bias, options);
    case 3: return nn::depthwise_conv2d(image, shaped(y, {3, 3, channels, 1}), {}, options);
    case 4: return nn::max_pool2d(image, pool);
    case 5: return nn::avg_pool2d(image, pool);
    case 6: return nn::global_avg_pool2d(image, choices.pick(2) == 0);
    default: return nn::global_max_pool2d(image, choices.pick(2) == 0);
  }
}

// Also what follows a normalisation in networks: a sum with other branches, an activation.
inline Tensors normalise_step(Choices& choices, const Tensor& value, const Tensors& values) {
  const bool fits = value.rank() > 1 && value.size() > 0;
  const Tensor x = fits ? value : shaped(value, {2, 1 + choices.pick(4)});
  const Shape last = {x.dim(-1)};
  const Tensor scale = shaped(choices.of(values), last), shift = shaped(choices.of(values), last);
  switch (choices.pick(10)) {
    case 0: return {nn::softmax(x, choices.axis(x))};
    case 1: return {nn::log_softmax(x, choices.axis(x))};
    case 2: return {choices.random_numbers ? nn::dropout(x, 0.3) : x};
    case 3: return {nn::layer_norm(x, scale, shift)};
    case 4:
    case 5: {
      const auto [y, mean, variance] = nn::batch_norm_training(x, scale, shift);
      if (choices.pick(3) > 0) return {y};
      return {cast(mean, x.dtype()), cast(variance, x.dtype()), y};
    }
    case 6: return {nn::batch_norm_inference(x, scale, shift, shift * 0.5, square(scale) + 0.1)};
    case 7: {
      const Tensor y = nn::batch_norm_inference(x, scale, shift, scale, square(shift) + 0.1);
      return {add_n({like(choices.of(values), x), y, like(choices.of(values), x) * 2.0})};
    }
    default: {
      const Tensor y = nn::layer_norm(x, scale, shift);
      return {nn::relu(y + like(choices.of(values), x))};
    }
  }
}

inline Tensor attention_step(Choices& choices, const Tensor& x, const Tensor& y) {
  const std::int64_t queries = 1 + choices.pick(5), keys = 1 + choices.pick(5);
  nn::AttentionOptions options{
      .causal = choices.pick(2) == 0,
      .dropout_rate = choices.random_numbers && choices.pick(3) == 0 ? 0.25 : 0.0};
  if (choices.pick(2) == 0) options.mask = greater(shaped(y, {2, 1, queries, keys}), -1.0);
  return nn::scaled_dot_product_attention(shaped(tanh(x), {2, queries, 2, 4}),
                                          shaped(tanh(y), {2, keys, 2, 4}),
                                          shaped(x, {2, keys, 2, 4}), options);
}

inline Tensor loss_step(Choices& choices, const Tensor& x, const Tensor& y) {
  const Tensor logits = shaped(x, {4, 3});
  switch (choices.pick(5)) {
    case 0: return nn::sparse_softmax_cross_entropy(indices(shaped(y, {4}), 3, int32), logits);
    case 1: return nn::softmax_cross_entropy(nn::softmax(shaped(y, {4, 3})), logits);
    case 2: return losses::huber(shaped(y, {4, 3}), logits);
    case 3: return losses::mse(shaped(y, {4, 3}), logits);
    default: return losses::kl_divergence(nn::softmax(shaped(y, {4, 3})), nn::softmax(logits));
  }
}

inline Tensor create_step(Choices& choices, const Tensor& x) {
  const std::int64_t count = 1 + choices.pick(5);
  const CreationOptions options{.dtype = x.dtype()};
  switch (choices.pick(6)) {
    case 0: return zeros({count}, options) + full({count}, 0.75, options);
    case 1: return range(0.5, 3.0, 0.25, options);
    case 2: return linspace(-1.0, 2.0, count, options);
    case 3: return eye(count, 1 + choices.pick(5), options);
    case 4: return one_hot(indices(shaped(x, {count}), 3, int32), 3, {.dtype = x.dtype()});
    default: return cast(range(count), x.dtype()) * like(x, ones({count}));
  }
}

inline Tensor random_step(Choices& choices, const Tensor& x) {
  const Shape shape = choices.shape();
  if (!choices.random_numbers) return ones(shape, {.dtype = x.dtype()});
  const random::Options options{.dtype = x.dtype()};
  switch (choices.pick(6)) {
    case 0: return random::normal(shape, 0.5, 2.0, options);
    case 1: return random::truncated_normal(shape, 0.0, 1.0, options);
    case 2: return random::uniform(shape, -1.0, 1.0, options);
    case 3: return cast(random::uniform_int(shape, -3, 5), x.dtype());
    case 4: return random::bernoulli(shape, 0.3, options);
    default: return x.rank() > 0 ? random::shuffle(x) : x;
  }
}

// Tensors of the surrounding code have one use that has a gradient, so that there is one order of
// additions.
inline Tensor control_step(Choices& choices, const Tensor& outer_x, const Tensor& outer_y) {
  const Tensor x = outer_x * 1.0, y = like(outer_y, x) * 1.0;
  if (!choices.control_flow) return x + y;
  const std::uint32_t seed = static_cast<std::uint32_t>(choices.pick(1000));
  if (choices.pick(2) == 0) {
    return cond(
        greater(reduce_sum(tanh(y)), 0.0),
        [&] {
          Choices inside(seed);
          return like(binary_step(inside, x, y), x);
        },
        [&] {
          Choices inside(seed + 1);
          return like(unary_step(inside, x), x);
        });
  }
  const auto below = [&](const Tensors& v) { return less(v[0], 3.0); };
  const auto body = [&](const Tensors& v) {
    Choices inside(seed);
    return Tensors{v[0] + 1.0, like(unary_step(inside, v[1]), x) * 0.5 + stop_gradient(y)};
  };
  return while_loop(below, body, {zeros({}), x})[1];
}

}  // namespace tandem::testing
