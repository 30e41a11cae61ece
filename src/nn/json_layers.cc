// Layers of JSON text.
#include "nn/json_options.h"

namespace tandem {
namespace {

using namespace layers;
using Make = tandem::Layer (*)(JsonOptions&);

template <class Made, class Options = SimpleOptions>
tandem::Layer plain(JsonOptions& json) {
  return made_with<Made, Options>(json);
}

// A layer whose constructor takes the member `kMember`, of type T, before the options.
template <class Made, class Options, class T, const char* kMember>
tandem::Layer with_argument(JsonOptions& json) {
  return made_with<Made, Options>(json, json.required<T>(kMember));
}

constexpr char kUnits[] = "units", kKernelSize[] = "kernel_size", kRate[] = "rate",
               kTargetShape[] = "target_shape", kActivation[] = "activation",
               kSequenceLength[] = "sequence_length";

tandem::Layer conv2d(JsonOptions& json) {
  const auto filters = json.required<std::int64_t>("filters");
  return made_with<Conv2D, Conv2DOptions>(json, filters, json.required<nn::Pair>("kernel_size"));
}

tandem::Layer multi_head_attention(JsonOptions& json) {
  const auto heads = json.required<std::int64_t>("num_heads");
  return made_with<MultiHeadAttention, MultiHeadAttentionOptions>(
      json, heads, json.required<std::int64_t>("key_dim"));
}

tandem::Layer rescaling(JsonOptions& json) {
  const auto scale = json.required<double>("scale");
  return made_with<Rescaling, SimpleOptions>(json, scale, json.value("offset", 0.0));
}

tandem::Layer zero_padding2d(JsonOptions& json) {
  return made_with<ZeroPadding2D, SimpleOptions>(json, json.value("padding", nn::Pair(1)));
}

tandem::Layer embedding(JsonOptions& json) {
  const auto rows = json.required<std::int64_t>("input_dim");
  return made_with<Embedding, EmbeddingOptions>(json, rows,
                                                json.required<std::int64_t>("output_dim"));
}

// Layers of one input, by their kinds.
constexpr NamedEntry<Make> kTable[] = {
    {"dense", with_argument<Dense, DenseOptions, std::int64_t, kUnits>},
    {"conv2d", conv2d},
    {"depthwise_conv2d",
     with_argument<DepthwiseConv2D, DepthwiseConv2DOptions, nn::Pair, kKernelSize>},
    {"max_pooling2d", plain<MaxPooling2D, Pooling2DOptions>},
    {"average_pooling2d", plain<AveragePooling2D, Pooling2DOptions>},
    {"global_average_pooling2d", plain<GlobalAveragePooling2D, GlobalPooling2DOptions>},
    {"global_max_pooling2d", plain<GlobalMaxPooling2D, GlobalPooling2DOptions>},
    {"batch_normalization", plain<BatchNormalization, BatchNormalizationOptions>},
    {"layer_normalization", plain<LayerNormalization, LayerNormalizationOptions>},
    {"multi_head_attention", multi_head_attention},
    {"dropout", with_argument<Dropout, SimpleOptions, double, kRate>},
    {"flatten", plain<Flatten>},
    {"reshape", with_argument<Reshape, SimpleOptions, Shape, kTargetShape>},
    {"activation", with_argument<Activation, SimpleOptions, ActivationName, kActivation>},
    {"relu", plain<ReLU>},
    {"softmax", plain<Softmax>},
    {"rescaling", rescaling},
    {"zero_padding2d", zero_padding2d},
    {"embedding", embedding},
    {"position_embedding",
     with_argument<PositionEmbedding, PositionEmbeddingOptions, std::int64_t, kSequenceLength>},
};

}  // namespace

tandem::Layer layer_from_json(const Json& json, const std::string& path) {
  return typed_from_json(std::span(kTable), json, path);
}

}  // namespace tandem
