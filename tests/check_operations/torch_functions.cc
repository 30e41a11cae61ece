// The functions of nn::functional, with PyTorch's layouts and arguments.
#include <tandem/convolution_modules.h>
#include <tandem/elementary.h>
#include <tandem/functional.h>
#include <tandem/functional_losses.h>
#include <tandem/image_modules.h>
#include <tandem/normalization_modules.h>
#include <tandem/recurrent_modules.h>
#include <tandem/resampling_modules.h>
#include <tandem/sampling_modules.h>
#include <tandem/scatter.h>
#include <tandem/unpooling_modules.h>

#include <sstream>
#include <utility>

#include "operations.h"

namespace check_operations {
namespace {

namespace F = td::nn::functional;
using td::Tensor;
using Table = std::map<std::string, Operation>;

template <class Function>
Operation call(Function f) {
  return [f](const Call& c) -> Tensors { return {f(c)}; };
}
Operation unary(Tensor (*f)(const Tensor&)) {
  return call([f](const Call& c) { return f(c.x[0]); });
}

Tensor optional(const Call& c, std::size_t i) { return i < c.x.size() ? c.x[i] : Tensor(); }

Table activations() {
  return {
      {"F.hardsigmoid", unary(F::hardsigmoid)},
      {"F.hardswish", unary(F::hardswish)},
      {"F.logsigmoid", unary(F::logsigmoid)},
      {"F.mish", unary(F::mish)},
      {"F.softsign", unary(F::softsign)},
      {"F.tanhshrink", unary(F::tanhshrink)},
      {"F.celu", call([](const Call& c) { return F::celu(c.x[0], c.number("alpha")); })},
      {"F.hardshrink",
       call([](const Call& c) { return F::hardshrink(c.x[0], c.number("lambd")); })},
      {"F.softshrink",
       call([](const Call& c) { return F::softshrink(c.x[0], c.number("lambd")); })},
      {"F.threshold", call([](const Call& c) {
         return F::threshold(c.x[0], c.number("threshold"), c.number("value"));
       })},
      {"F.glu", call([](const Call& c) { return F::glu(c.x[0], c.integer("dim")); })},
      {"F.softmin", call([](const Call& c) { return F::softmin(c.x[0], c.integer("dim")); })},
      {"F.softplus", call([](const Call& c) {
         return F::softplus(c.x[0], c.number("beta"), c.number("threshold"));
       })},
      {"F.prelu", call([](const Call& c) { return F::prelu(c.x[0], c.x[1]); })},
      {"F.rrelu",
       call([](const Call& c) { return F::rrelu(c.x[0], c.number("lower"), c.number("upper")); })},
  };
}

std::vector<std::int64_t> list(const Call& c, const char* name) {
  const td::Dims all = c.dims(name);
  return {all.begin(), all.end()};
}

td::nn::Triple triple(const Call& c, const char* name) {
  const td::Dims all = c.dims(name);
  return {all[0], all[1], all[2]};
}

Table sequences_and_volumes() {
  return {
      {"F.conv1d", call([](const Call& c) {
         return F::conv1d(c.x[0], c.x[1], optional(c, 2),
                          {.stride = c.integer("stride"),
                           .padding = c.integer("padding"),
                           .dilation = c.integer("dilation"),
                           .groups = c.integer("groups")});
       })},
      {"F.conv3d", call([](const Call& c) {
         return F::conv3d(c.x[0], c.x[1], optional(c, 2),
                          {.stride = triple(c, "stride"),
                           .padding = triple(c, "padding"),
                           .dilation = triple(c, "dilation"),
                           .groups = c.integer("groups")});
       })},
      {"F.conv_transpose1d", call([](const Call& c) {
         return F::conv_transpose1d(c.x[0], c.x[1], optional(c, 2),
                                    {.stride = c.integer("stride"),
                                     .padding = c.integer("padding"),
                                     .output_padding = c.integer("output_padding"),
                                     .groups = c.integer("groups"),
                                     .dilation = c.integer("dilation")});
       })},
      {"F.conv_transpose3d", call([](const Call& c) {
         return F::conv_transpose3d(c.x[0], c.x[1], optional(c, 2),
                                    {.stride = triple(c, "stride"),
                                     .padding = triple(c, "padding"),
                                     .output_padding = triple(c, "output_padding"),
                                     .groups = c.integer("groups"),
                                     .dilation = triple(c, "dilation")});
       })},
      {"F.max_pool1d",
       [](const Call& c) -> Tensors {
         const td::nn::MaxPool1dArguments options{.stride = c.integer("stride"),
                                                  .padding = c.integer("padding"),
                                                  .dilation = c.integer("dilation"),
                                                  .ceil_mode = c.flag("ceil")};
         if (!c.flag("indices")) return {F::max_pool1d(c.x[0], c.integer("size"), options)};
         const auto [values, indices] =
             F::max_pool1d_with_indices(c.x[0], c.integer("size"), options);
         return {values, indices};
       }},
      {"F.max_unpool1d", call([](const Call& c) {
         return F::max_unpool1d(c.x[0], c.x[1], c.integer("size"),
                                {.stride = c.integer("stride"), .padding = c.integer("padding")},
                                list(c, "output"));
       })},
      {"F.avg_pool1d", call([](const Call& c) {
         return F::avg_pool1d(c.x[0], c.integer("size"),
                              {.stride = c.integer("stride"),
                               .padding = c.integer("padding"),
                               .ceil_mode = c.flag("ceil"),
                               .count_include_pad = c.flag("counted")});
       })},
      {"F.max_pool3d",
       [](const Call& c) -> Tensors {
         const td::nn::MaxPool3dArguments options{.stride = triple(c, "stride"),
                                                  .padding = triple(c, "padding"),
                                                  .dilation = triple(c, "dilation"),
                                                  .ceil_mode = c.flag("ceil")};
         if (!c.flag("indices")) return {F::max_pool3d(c.x[0], triple(c, "size"), options)};
         const auto [values, indices] =
             F::max_pool3d_with_indices(c.x[0], triple(c, "size"), options);
         return {values, indices};
       }},
      {"F.max_unpool3d", call([](const Call& c) {
         return F::max_unpool3d(c.x[0], c.x[1], triple(c, "size"),
                                {.stride = triple(c, "stride"), .padding = triple(c, "padding")},
                                list(c, "output"));
       })},
      {"F.avg_pool3d", call([](const Call& c) {
         td::nn::AvgPool3dArguments options{.stride = triple(c, "stride"),
                                            .padding = triple(c, "padding"),
                                            .ceil_mode = c.flag("ceil"),
                                            .count_include_pad = c.flag("counted")};
         if (c.has("divisor")) options.divisor_override = c.integer("divisor");
         return F::avg_pool3d(c.x[0], triple(c, "size"), options);
       })},
      {"F.adaptive_avg_pool1d",
       call([](const Call& c) { return F::adaptive_avg_pool1d(c.x[0], c.integer("size")); })},
      {"F.adaptive_max_pool1d",
       call([](const Call& c) { return F::adaptive_max_pool1d(c.x[0], c.integer("size")); })},
      {"F.adaptive_avg_pool3d",
       call([](const Call& c) { return F::adaptive_avg_pool3d(c.x[0], triple(c, "size")); })},
      {"F.adaptive_max_pool3d",
       call([](const Call& c) { return F::adaptive_max_pool3d(c.x[0], triple(c, "size")); })},
      {"F.pixel_shuffle",
       call([](const Call& c) { return F::pixel_shuffle(c.x[0], c.integer("factor")); })},
      {"F.pixel_unshuffle",
       call([](const Call& c) { return F::pixel_unshuffle(c.x[0], c.integer("factor")); })},
      {"F.channel_shuffle",
       call([](const Call& c) { return F::channel_shuffle(c.x[0], c.integer("factor")); })},
  };
}

Table windows() {
  return {
      {"F.max_pool2d",
       [](const Call& c) -> Tensors {
         const td::nn::MaxPool2dArguments options{.stride = c.pair("stride"),
                                                  .padding = c.pair("padding"),
                                                  .dilation = c.pair("dilation"),
                                                  .ceil_mode = c.flag("ceil")};
         if (!c.flag("indices")) return {F::max_pool2d(c.x[0], c.pair("size"), options)};
         const auto [values, indices] = F::max_pool2d_with_indices(c.x[0], c.pair("size"), options);
         return {values, indices};
       }},
      {"F.max_unpool2d", call([](const Call& c) {
         return F::max_unpool2d(c.x[0], c.x[1], c.pair("size"),
                                {.stride = c.pair("stride"), .padding = c.pair("padding")},
                                list(c, "output"));
       })},
      {"F.avg_pool2d", call([](const Call& c) {
         td::nn::AvgPool2dArguments options{.stride = c.pair("stride"),
                                            .padding = c.pair("padding"),
                                            .ceil_mode = c.flag("ceil"),
                                            .count_include_pad = c.flag("counted")};
         if (c.has("divisor")) options.divisor_override = c.integer("divisor");
         return F::avg_pool2d(c.x[0], c.pair("size"), options);
       })},
      {"F.adaptive_avg_pool2d",
       call([](const Call& c) { return F::adaptive_avg_pool2d(c.x[0], c.pair("size")); })},
      {"F.adaptive_max_pool2d",
       call([](const Call& c) { return F::adaptive_max_pool2d(c.x[0], c.pair("size")); })},
      {"conv2d_transpose", call([](const Call& c) {
         return td::nn::conv2d_transpose(c.x[0], c.x[1], optional(c, 2),
                                         {.strides = c.pair("strides"),
                                          .padding = c.pair("pad"),
                                          .output_padding = c.pair("more"),
                                          .dilations = c.pair("dilations"),
                                          .groups = c.integer("groups")});
       })},
      {"F.pad", call([](const Call& c) {
         const td::Dims sides = c.dims("sides");
         return F::pad(c.x[0], std::vector<std::int64_t>(sides.begin(), sides.end()),
                       c.text("mode"), c.number("value"));
       })},
  };
}

Operation binary(Tensor (*f)(const Tensor&, const Tensor&)) {
  return call([f](const Call& c) { return f(c.x[0], c.x[1]); });
}

Table elementary() {
  return {
      {"sinh", unary(td::sinh)},
      {"cosh", unary(td::cosh)},
      {"asinh", unary(td::asinh)},
      {"acosh", unary(td::acosh)},
      {"atanh", unary(td::atanh)},
      {"exp2", unary(td::exp2)},
      {"sinc", unary(td::sinc)},
      {"trunc", unary(td::trunc)},
      {"frac", unary(td::frac)},
      {"hypot", binary(td::hypot)},
      {"logaddexp", binary(td::logaddexp)},
      {"logaddexp2", binary(td::logaddexp2)},
      {"xlogy", binary(td::xlogy)},
      {"fmod", binary(td::fmod)},
      {"logical_xor", binary(td::logical_xor)},
      {"kron", binary(td::kron)},
      {"logit", call([](const Call& c) {
         return c.has("eps") ? td::logit(c.x[0], c.number("eps")) : td::logit(c.x[0]);
       })},
      {"nan_to_num", call([](const Call& c) {
         const auto limit = [&](const char* name) {
           return c.has(name) ? std::optional(c.number(name)) : std::nullopt;
         };
         return td::nan_to_num(c.x[0], c.number("nan"), limit("posinf"), limit("neginf"));
       })},
      {"lerp", call([](const Call& c) { return td::lerp(c.x[0], c.x[1], c.x[2]); })},
      {"addcmul",
       call([](const Call& c) { return td::addcmul(c.x[0], c.x[1], c.x[2], c.number("value")); })},
      {"addcdiv",
       call([](const Call& c) { return td::addcdiv(c.x[0], c.x[1], c.x[2], c.number("value")); })},
      {"isclose", call([](const Call& c) {
         return td::isclose(c.x[0], c.x[1], c.number("rtol"), c.number("atol"));
       })},
      {"cumprod", call([](const Call& c) { return td::cumprod(c.x[0], c.integer("dim")); })},
      {"logcumsumexp",
       call([](const Call& c) { return td::logcumsumexp(c.x[0], c.integer("dim")); })},
      {"cummax",
       [](const Call& c) -> Tensors {
         const td::ValuesAndIndices found = td::cummax(c.x[0], c.integer("dim"));
         return {found.values, found.indices};
       }},
      {"cummin",
       [](const Call& c) -> Tensors {
         const td::ValuesAndIndices found = td::cummin(c.x[0], c.integer("dim"));
         return {found.values, found.indices};
       }},
      {"diff",
       call([](const Call& c) { return td::diff(c.x[0], c.integer("n"), c.integer("dim")); })},
      {"tensordot", call([](const Call& c) {
         const td::Dims a = c.dims("a"), b = c.dims("b");
         return td::tensordot(c.x[0], c.x[1], {a.begin(), a.end()}, {b.begin(), b.end()});
       })},
      {"einsum", call([](const Call& c) { return td::einsum(c.text("equation"), c.x); })},
      {"cross", call([](const Call& c) { return td::cross(c.x[0], c.x[1], c.integer("dim")); })},
      {"cdist", call([](const Call& c) { return td::cdist(c.x[0], c.x[1], c.number("p")); })},
      {"diag_embed",
       call([](const Call& c) { return td::diag_embed(c.x[0], c.integer("offset")); })},
      {"repeat_interleave", call([](const Call& c) {
         return td::repeat_interleave(c.x[0], c.integer("repeats"), c.integer("dim"));
       })},
      {"searchsorted",
       call([](const Call& c) { return td::searchsorted(c.x[0], c.x[1], c.flag("right")); })},
      {"index_add",
       call([](const Call& c) { return td::index_add(c.x[0], c.integer("dim"), c.x[1], c.x[2]); })},
  };
}

Table normalization() {
  return {
      {"F.group_norm", call([](const Call& c) {
         return F::group_norm(c.x[0], c.integer("groups"), optional(c, 1), optional(c, 2),
                              c.number("eps"));
       })},
      {"F.instance_norm", call([](const Call& c) {
         return F::instance_norm(c.x[0], optional(c, 1), optional(c, 2), c.number("eps"));
       })},
      {"F.rms_norm", call([](const Call& c) {
         return F::rms_norm(c.x[0], c.dims("shape"), optional(c, 1),
                            c.has("eps") ? std::optional(c.number("eps")) : std::nullopt);
       })},
      {"F.local_response_norm", call([](const Call& c) {
         return F::local_response_norm(c.x[0], c.integer("size"), c.number("alpha"),
                                       c.number("beta"), c.number("k"));
       })},
  };
}

Table resampling() {
  return {
      {"F.interpolate", call([](const Call& c) {
         return F::interpolate(
             c.x[0], {.size = c.attributes.at("size").get<std::vector<std::int64_t>>(),
                      .scale_factor = c.attributes.at("factor").get<std::vector<double>>(),
                      .mode = c.text("mode"),
                      .align_corners = c.flag("align"),
                      .recompute_scale_factor = c.flag("again")});
       })},
      {"F.unfold", call([](const Call& c) {
         return F::unfold(c.x[0], c.pair("size"),
                          {.dilation = c.pair("dilation"),
                           .padding = c.pair("padding"),
                           .stride = c.pair("stride")});
       })},
      {"F.lp_pool1d", call([](const Call& c) {
         return F::lp_pool1d(c.x[0], c.number("p"), c.integer("size"),
                             {.stride = c.integer("stride"), .ceil_mode = c.flag("ceil")});
       })},
      {"F.lp_pool2d", call([](const Call& c) {
         return F::lp_pool2d(c.x[0], c.number("p"), c.pair("size"),
                             {.stride = c.pair("stride"), .ceil_mode = c.flag("ceil")});
       })},
      {"F.lp_pool3d", call([](const Call& c) {
         return F::lp_pool3d(c.x[0], c.number("p"), triple(c, "size"),
                             {.stride = triple(c, "stride"), .ceil_mode = c.flag("ceil")});
       })},
      {"F.bilinear",
       call([](const Call& c) { return F::bilinear(c.x[0], c.x[1], c.x[2], optional(c, 3)); })},
      {"F.pdist", call([](const Call& c) { return F::pdist(c.x[0], c.number("p")); })},
  };
}

// A module of sequences, with the parameters after the first tensor: the output. Modules are kept,
// because a trace cannot make variables.
template <class Module>
Operation recurrent() {
  return call([](const Call& c) {
    std::ostringstream key;
    key << c.attributes;
    static std::map<std::string, Module> made;
    auto found = made.find(key.str());
    if (found == made.end())
      found = made.emplace(key.str(), Module(c.integer("inputs"), c.integer("hidden"),
                                             {.num_layers = c.integer("layers"),
                                              .nonlinearity = c.flag("relu") ? "relu" : "tanh",
                                              .bias = c.flag("bias"),
                                              .batch_first = c.flag("batch_first"),
                                              .bidirectional = c.flag("both")}))
                  .first;
    std::size_t next = 1;
    for (td::Variable variable : found->second->parameters()) variable.assign(c.x[next++]);
    return std::get<0>(found->second->forward(c.x[0]));
  });
}

Table sampling() {
  return {
      {"F.grid_sample", call([](const Call& c) {
         return F::grid_sample(c.x[0], c.x[1],
                               {.mode = c.text("mode"),
                                .padding_mode = c.text("padding_mode"),
                                .align_corners = c.flag("align_corners")});
       })},
      {"F.embedding_bag", call([](const Call& c) {
         const bool offsets = c.flag("offsets");
         td::nn::EmbeddingBagOptions options{.mode = c.text("mode"),
                                             .per_sample_weights = optional(c, offsets ? 3 : 2),
                                             .include_last_offset = c.flag("last")};
         if (c.has("padding")) options.padding_idx = c.integer("padding");
         return F::embedding_bag(c.x[0], c.x[1], offsets ? c.x[2] : Tensor(), options);
       })},
      {"index_put", call([](const Call& c) {
         const std::vector<Tensor> indices(c.x.begin() + 2, c.x.end());
         return td::index_put(c.x[0], indices, c.x[1], c.flag("accumulate"));
       })},
  };
}

Table sequence_modules() {
  return {
      {"LSTM", recurrent<td::nn::LSTM>()},
      {"GRU", recurrent<td::nn::GRU>()},
      {"RNN", recurrent<td::nn::RNN>()},
  };
}

td::nn::LossReduction reduction(const Call& c) { return c.text("reduction").c_str(); }

Table losses() {
  return {
      {"F.cosine_similarity", call([](const Call& c) {
         return F::cosine_similarity(c.x[0], c.x[1], c.integer("dim"), c.number("eps"));
       })},
      {"F.pairwise_distance", call([](const Call& c) {
         return F::pairwise_distance(
             c.x[0], c.x[1],
             {.p = c.number("p"), .eps = c.number("eps"), .keepdim = c.flag("keepdim")});
       })},
      {"F.gaussian_nll_loss", call([](const Call& c) {
         return F::gaussian_nll_loss(
             c.x[0], c.x[1], c.x[2],
             {.full = c.flag("full"), .eps = c.number("eps"), .reduction = reduction(c)});
       })},
      {"F.poisson_nll_loss", call([](const Call& c) {
         return F::poisson_nll_loss(c.x[0], c.x[1],
                                    {.log_input = c.flag("log_input"),
                                     .full = c.flag("full"),
                                     .eps = c.number("eps"),
                                     .reduction = reduction(c)});
       })},
      {"F.cosine_embedding_loss", call([](const Call& c) {
         return F::cosine_embedding_loss(c.x[0], c.x[1], c.x[2],
                                         {.margin = c.number("margin"), .reduction = reduction(c)});
       })},
      {"F.margin_ranking_loss", call([](const Call& c) {
         return F::margin_ranking_loss(c.x[0], c.x[1], c.x[2],
                                       {.margin = c.number("margin"), .reduction = reduction(c)});
       })},
      {"F.hinge_embedding_loss", call([](const Call& c) {
         return F::hinge_embedding_loss(c.x[0], c.x[1],
                                        {.margin = c.number("margin"), .reduction = reduction(c)});
       })},
      {"F.soft_margin_loss", call([](const Call& c) {
         return F::soft_margin_loss(c.x[0], c.x[1], {.reduction = reduction(c)});
       })},
      {"F.triplet_margin_loss", call([](const Call& c) {
         return F::triplet_margin_loss(c.x[0], c.x[1], c.x[2],
                                       {.margin = c.number("margin"),
                                        .p = c.number("p"),
                                        .eps = c.number("eps"),
                                        .swap = c.flag("swap"),
                                        .reduction = reduction(c)});
       })},
      {"F.multi_margin_loss", call([](const Call& c) {
         return F::multi_margin_loss(c.x[0], c.x[1],
                                     {.p = c.integer("p"),
                                      .margin = c.number("margin"),
                                      .weight = optional(c, 2),
                                      .reduction = reduction(c)});
       })},
      {"F.multilabel_soft_margin_loss", call([](const Call& c) {
         return F::multilabel_soft_margin_loss(
             c.x[0], c.x[1], {.weight = optional(c, 2), .reduction = reduction(c)});
       })},
      {"F.ctc_loss", call([](const Call& c) {
         return F::ctc_loss(td::nn::log_softmax(c.x[0]), c.x[1], c.x[2], c.x[3],
                            {.blank = c.integer("blank"),
                             .reduction = reduction(c),
                             .zero_infinity = c.flag("zero_infinity")});
       })},
      {"F.smooth_l1_loss", call([](const Call& c) {
         return F::smooth_l1_loss(c.x[0], c.x[1],
                                  {.reduction = reduction(c), .beta = c.number("beta")});
       })},
      {"F.nll_loss", call([](const Call& c) {
         return F::nll_loss(c.x[0], c.x[1],
                            {.weight = optional(c, 2),
                             .ignore_index = c.integer("ignore_index"),
                             .reduction = reduction(c)});
       })},
  };
}

}  // namespace

Table torch_functions() {
  Table joined = activations();
  for (Table part : {elementary(), sequences_and_volumes(), windows(), losses(), normalization(),
                     resampling(), sampling(), sequence_modules()})
    joined.merge(part);
  return joined;
}

}  // namespace check_operations
