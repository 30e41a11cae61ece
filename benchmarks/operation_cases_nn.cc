// Activations, layers' arithmetic, convolutions, pools, normalisations, attention and losses.
#include "operation_cases.h"

namespace bench {
namespace {

void add_activations(CaseList& list) {
  list.unary("relu", "F.relu(a)", td::nn::relu);
  list.unary("relu6", "F.relu6(a)", td::nn::relu6);
  list.matrix("leaky_relu", "F.leaky_relu(a, 0.2)",
              [](const Arguments& in) { return td::nn::leaky_relu(in[0]); });
  list.matrix("elu", "F.elu(a)", [](const Arguments& in) { return td::nn::elu(in[0]); });
  list.unary("selu", "F.selu(a)", td::nn::selu);
  list.matrix("gelu", "F.gelu(a)", [](const Arguments& in) { return td::nn::gelu(in[0]); });
  list.matrix("gelu_tanh", "F.gelu(a, approximate='tanh')",
              [](const Arguments& in) { return td::nn::gelu(in[0], true); });
  list.unary("swish", "F.silu(a)", td::nn::swish);
  list.unary("softplus", "F.softplus(a)", td::nn::softplus);
  list.matrix("softmax", "F.softmax(a, -1)",
              [](const Arguments& in) { return td::nn::softmax(in[0]); });
  list.matrix("softmax_columns", "F.softmax(a, 0)",
              [](const Arguments& in) { return td::nn::softmax(in[0], 0); });
  list.matrix("log_softmax", "F.log_softmax(a, -1)",
              [](const Arguments& in) { return td::nn::log_softmax(in[0]); });
  list.add({.name = "dropout",
            .torch = "F.dropout(a, 0.1)",
            .inputs = {{kMatrix}},
            .call = [](const Arguments& in) { return td::nn::dropout(in[0], 0.1); },
            .random = true});
}

void add_dense(CaseList& list) {
  const Input x = {{td::Shape{32, 64}, td::Shape{256, 512}, td::Shape{512, 1024}}};
  const Input weights = {{td::Shape{64, 64}, td::Shape{512, 512}, td::Shape{1024, 4096}},
                         Values::kSigned,
                         Layout::kLinear};
  const Input bias = {{td::Shape{64}, td::Shape{512}, td::Shape{4096}}};
  const auto dense = [&](const char* name, const char* torch, td::nn::Activation activation) {
    list.add({.name = name,
              .torch = torch,
              .inputs = {x, weights, bias},
              .call = [activation](const Arguments& in) {
                return td::nn::dense(in[0], in[1], in[2], activation);
              }});
  };
  dense("dense", "F.linear(a, b, c)", td::nn::Activation::kLinear);
  dense("dense_relu", "F.relu(F.linear(a, b, c))", td::nn::Activation::kRelu);
  dense("dense_gelu", "F.gelu(F.linear(a, b, c))", td::nn::Activation::kGelu);
  list.add({.name = "dense_without_bias",
            .torch = "F.linear(a, b)",
            .inputs = {x, weights},
            .call = [](const Arguments& in) { return td::nn::dense(in[0], in[1]); }});
  list.add({.name = "bias_add",
            .torch = "a + b",
            .inputs = {{kMatrix}, {{td::Shape{64}, td::Shape{512}, td::Shape{2048}}}},
            .call = [](const Arguments& in) { return td::nn::bias_add(in[0], in[1]); }});
}

Input images(std::int64_t small, std::int64_t middle, std::int64_t large) {
  return {{td::Shape{2, 8, 8, small}, td::Shape{16, 32, 32, middle}, td::Shape{16, 56, 56, large}},
          Values::kSigned,
          Layout::kImage};
}

// A square window; `groups` divides the channels.
Input kernel(std::int64_t window, std::int64_t groups = 1) {
  const auto of = [&](std::int64_t channels) {
    return td::Shape{window, window, channels / groups, channels};
  };
  return {{of(16), of(32), of(64)}, Values::kSigned, Layout::kKernel};
}

void add_convolutions(CaseList& list) {
  const Input x = images(16, 32, 64);
  const Input bias = {{td::Shape{16}, td::Shape{32}, td::Shape{64}}};
  using Options = td::nn::Conv2DOptions;
  const auto conv = [&](const char* name, const char* torch, const Input& weights,
                        const Options& options) {
    list.add({.name = name,
              .torch = torch,
              .inputs = {x, weights},
              .call = [options](const Arguments& in) {
                return td::nn::conv2d(in[0], in[1], {}, options);
              }});
  };
  constexpr td::nn::Padding kSame = td::nn::Padding::kSame;
  conv("conv2d_3x3", "F.conv2d(a, b, padding=1)", kernel(3), {.padding = kSame});
  conv("conv2d_3x3_stride2", "F.conv2d(a, b, stride=2)", kernel(3), {.strides = 2});
  conv("conv2d_1x1", "F.conv2d(a, b)", kernel(1), {});
  conv("conv2d_5x5", "F.conv2d(a, b, padding=2)", kernel(5), {.padding = kSame});
  conv("conv2d_groups", "F.conv2d(a, b, padding=1, groups=4)", kernel(3, 4),
       {.padding = kSame, .groups = 4});
  conv("conv2d_dilated", "F.conv2d(a, b, padding=2, dilation=2)", kernel(3),
       {.padding = kSame, .dilations = 2});
  list.add({.name = "conv2d_bias_relu",
            .torch = "F.relu(F.conv2d(a, b, c, padding=1))",
            .inputs = {x, kernel(3), bias},
            .call = [](const Arguments& in) {
              return td::nn::conv2d(in[0], in[1], in[2],
                                    {.padding = kSame, .activation = td::nn::Activation::kRelu});
            }});
  list.add(
      {.name = "conv2d_7x7_of_rgb",
       .torch = "F.conv2d(a, b, stride=2)",
       .inputs = {{{td::Shape{1, 32, 32, 3}, td::Shape{4, 64, 64, 3}, td::Shape{8, 224, 224, 3}},
                   Values::kSigned,
                   Layout::kImage},
                  {{td::Shape{7, 7, 3, 64}, td::Shape{7, 7, 3, 64}, td::Shape{7, 7, 3, 64}},
                   Values::kSigned,
                   Layout::kKernel}},
       .call = [](const Arguments& in) {
         return td::nn::conv2d(in[0], in[1], {}, {.strides = 2});
       }});
  list.add({.name = "depthwise_conv2d",
            .torch = "F.conv2d(a, b, padding=1, groups=a.shape[1])",
            .inputs = {x,
                       {{td::Shape{3, 3, 16, 1}, td::Shape{3, 3, 32, 1}, td::Shape{3, 3, 64, 1}},
                        Values::kSigned,
                        Layout::kDepthwise}},
            .call = [](const Arguments& in) {
              return td::nn::depthwise_conv2d(in[0], in[1], {}, {.padding = kSame});
            }});
}

void add_pools(CaseList& list) {
  const auto pool = [&](const char* name, const char* torch, Call call) {
    list.add(
        {.name = name, .torch = torch, .inputs = {images(16, 32, 64)}, .call = std::move(call)});
  };
  pool("max_pool2d", "F.max_pool2d(a, 2)",
       [](const Arguments& in) { return td::nn::max_pool2d(in[0]); });
  pool("max_pool2d_3x3_stride2", "F.max_pool2d(a, 3, 2)",
       [](const Arguments& in) { return td::nn::max_pool2d(in[0], {.window = 3, .strides = 2}); });
  pool("avg_pool2d", "F.avg_pool2d(a, 2)",
       [](const Arguments& in) { return td::nn::avg_pool2d(in[0]); });
  pool("global_avg_pool2d", "a.mean((2, 3))",
       [](const Arguments& in) { return td::nn::global_avg_pool2d(in[0]); });
  pool("global_max_pool2d", "a.amax((2, 3))",
       [](const Arguments& in) { return td::nn::global_max_pool2d(in[0]); });
}

void add_normalisations(CaseList& list) {
  const auto vector = [](std::int64_t small, std::int64_t middle, std::int64_t large, Values values,
                         bool constant) {
    return Input{{td::Shape{small}, td::Shape{middle}, td::Shape{large}},
                 values,
                 Layout::kPlain,
                 {},
                 constant,
                 true};
  };
  const Input scale = vector(16, 32, 64, Values::kPositive, false);
  const Input shift = vector(16, 32, 64, Values::kSigned, false);
  list.add({.name = "batch_norm_training",
            .torch = "F.batch_norm(a, None, None, b, c, training=True, eps=1e-3)",
            .inputs = {images(16, 32, 64), scale, shift},
            .call = [](const Arguments& in) {
              return td::nn::batch_norm_training(in[0], in[1], in[2]).y;
            }});
  list.add({.name = "batch_norm_inference",
            .torch = "F.batch_norm(a, d, e, b, c, training=False, eps=1e-3)",
            .inputs = {images(16, 32, 64), scale, shift, vector(16, 32, 64, Values::kSigned, true),
                       vector(16, 32, 64, Values::kPositive, true)},
            .call = [](const Arguments& in) {
              return td::nn::batch_norm_inference(in[0], in[1], in[2], in[3], in[4]);
            }});
  list.add({.name = "layer_norm",
            .torch = "F.layer_norm(a, (a.shape[-1],), b, c, 1e-3)",
            .inputs = {{kMatrix},
                       vector(64, 512, 2048, Values::kPositive, false),
                       vector(64, 512, 2048, Values::kSigned, false)},
            .call = [](const Arguments& in) { return td::nn::layer_norm(in[0], in[1], in[2]); }});
}

void add_attention(CaseList& list) {
  const Input x = {{td::Shape{2, 16, 2, 16}, td::Shape{8, 128, 4, 64}, td::Shape{4, 512, 12, 64}},
                   Values::kSigned,
                   Layout::kHeads};
  const auto attention = [&](const char* name, const char* torch,
                             const td::nn::AttentionOptions& options, bool random) {
    list.add({.name = name,
              .torch = torch,
              .inputs = {x, x, x},
              .call =
                  [options](const Arguments& in) {
                    return td::nn::scaled_dot_product_attention(in[0], in[1], in[2], options);
                  },
              .random = random});
  };
  attention("attention", "F.scaled_dot_product_attention(a, b, c)", {}, false);
  attention("attention_causal", "F.scaled_dot_product_attention(a, b, c, is_causal=True)",
            {.causal = true}, false);
  attention("attention_dropout", "F.scaled_dot_product_attention(a, b, c, dropout_p=0.1)",
            {.dropout_rate = 0.1}, true);
  list.add(
      {.name = "attention_mask",
       .torch = "F.scaled_dot_product_attention(a, b, c, attn_mask=d)",
       .inputs = {x,
                  x,
                  x,
                  {{td::Shape{16, 16}, td::Shape{128, 128}, td::Shape{512, 512}}, Values::kBool}},
       .call = [](const Arguments& in) {
         return td::nn::scaled_dot_product_attention(in[0], in[1], in[2], {.mask = in[3]});
       }});
}

void add_losses(CaseList& list) {
  const Shapes logits = {td::Shape{64, 10}, td::Shape{512, 1000}, td::Shape{2048, 8192}};
  list.add({.name = "sparse_softmax_cross_entropy",
            .torch = "F.cross_entropy(b, a, reduction='none')",
            .inputs = {{{td::Shape{64}, td::Shape{512}, td::Shape{2048}},
                        Values::kClasses,
                        Layout::kPlain,
                        {10, 1000, 8192}},
                       {logits}},
            .call = [](const Arguments& in) {
              return td::nn::sparse_softmax_cross_entropy(in[0], in[1]);
            }});
  list.add(
      {.name = "softmax_cross_entropy",
       .torch = "F.cross_entropy(b, a, reduction='none')",
       .inputs = {{logits, Values::kUnit, Layout::kPlain, {}, true}, {logits}},
       .call = [](const Arguments& in) { return td::nn::softmax_cross_entropy(in[0], in[1]); }});
  list.add(
      {.name = "sigmoid_cross_entropy",
       .torch = "F.binary_cross_entropy_with_logits(b, a, reduction='none')",
       .inputs = {{kMatrix, Values::kUnit, Layout::kPlain, {}, true}, {kMatrix}},
       .call = [](const Arguments& in) { return td::nn::sigmoid_cross_entropy(in[0], in[1]); }});
  list.add({.name = "ctc",
            .torch = "F.ctc_loss(F.log_softmax(b.transpose(0, 1), -1), a + 1, "
                     "torch.full((b.shape[0],), b.shape[1]), "
                     "torch.full((a.shape[0],), a.shape[1]), reduction='none')",
            .inputs = {{{td::Shape{2, 3}, td::Shape{16, 20}, td::Shape{32, 100}},
                        Values::kClasses,
                        Layout::kPlain,
                        {5, 31, 95}},
                       {{td::Shape{2, 10, 6}, td::Shape{16, 100, 32}, td::Shape{32, 500, 96}}}},
            .call = [](const Arguments& in) { return td::losses::ctc(in[0] + 1, in[1]); },
            .dtypes = false});
}

}  // namespace

void add_nn_cases(CaseList list) {
  add_activations(list);
  add_dense(list);
  add_convolutions(list);
  add_pools(list);
  add_normalisations(list);
  add_attention(list);
  add_losses(list);
}

}  // namespace bench
