// Layers of JSON text.
#include "nn/json_options.h"
#include "tandem/convolution_layers.h"
#include "tandem/normalization_layers.h"
#include "tandem/preprocessing.h"

namespace tandem::layers::of_json {
namespace {

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
               kSequenceLength[] = "sequence_length", kPoolSize[] = "pool_size", kSize[] = "size",
               kGroups[] = "groups", kDims[] = "dims", kN[] = "n", kNumTokens[] = "num_tokens";

tandem::Layer multi_head_attention(JsonOptions& json) {
  const auto heads = json.required<std::int64_t>("num_heads");
  return made_with<MultiHeadAttention, MultiHeadAttentionOptions>(
      json, heads, json.required<std::int64_t>("key_dim"));
}

tandem::Layer rescaling(JsonOptions& json) {
  const auto scale = json.required<double>("scale");
  return made_with<Rescaling, SimpleOptions>(json, scale, json.value("offset", 0.0));
}

tandem::Layer leaky_relu(JsonOptions& json) {
  return made_with<LeakyReLU, SimpleOptions>(json, json.value("negative_slope", 0.3));
}

tandem::Layer elu(JsonOptions& json) {
  return made_with<ELU, SimpleOptions>(json, json.value("alpha", 1.0));
}

tandem::Layer zero_padding2d(JsonOptions& json) {
  return made_with<ZeroPadding2D, SimpleOptions>(json, json.value("padding", nn::Pair(1)));
}

tandem::Layer embedding(JsonOptions& json) {
  const auto rows = json.required<std::int64_t>("input_dim");
  return made_with<Embedding, EmbeddingOptions>(json, rows,
                                                json.required<std::int64_t>("output_dim"));
}

// A layer whose constructor takes the member `kMember`, or `otherwise`, before the options.
template <class Made, class Options, class T, const char* kMember, std::int64_t otherwise>
tandem::Layer with_default(JsonOptions& json) {
  return made_with<Made, Options>(json, json.value(kMember, T(otherwise)));
}

template <class Made, class Options, class KernelSize>
tandem::Layer with_filters(JsonOptions& json) {
  const auto filters = json.required<std::int64_t>("filters");
  return made_with<Made, Options>(json, filters, json.required<KernelSize>("kernel_size"));
}

// A layer that applies the one of the member "layer".
template <class Made, class Options>
tandem::Layer wrapper(JsonOptions& json) {
  json.require("layer");
  return made_with<Made, Options>(json,
                                  layer_from_json(*json.find("layer"), json.path_of("layer")));
}

// Layers by their kinds.
constexpr NamedEntry<Make> kTable[] = {
    {"dense", with_argument<Dense, DenseOptions, std::int64_t, kUnits>},
    {"conv2d", with_filters<Conv2D, Conv2DOptions, nn::Pair>},
    {"conv1d", with_filters<Conv1D, Conv1DOptions, std::int64_t>},
    {"conv3d", with_filters<Conv3D, Conv3DOptions, nn::Triple>},
    {"conv2d_transpose", with_filters<Conv2DTranspose, Conv2DTransposeOptions, nn::Pair>},
    {"separable_conv2d", with_filters<SeparableConv2D, SeparableConv2DOptions, nn::Pair>},
    {"depthwise_conv2d",
     with_argument<DepthwiseConv2D, DepthwiseConv2DOptions, nn::Pair, kKernelSize>},
    {"max_pooling2d", plain<MaxPooling2D, Pooling2DOptions>},
    {"average_pooling2d", plain<AveragePooling2D, Pooling2DOptions>},
    {"max_pooling1d", with_default<MaxPooling1D, Pooling1DOptions, std::int64_t, kPoolSize, 2>},
    {"average_pooling1d",
     with_default<AveragePooling1D, Pooling1DOptions, std::int64_t, kPoolSize, 2>},
    {"max_pooling3d", with_default<MaxPooling3D, Pooling3DOptions, nn::Triple, kPoolSize, 2>},
    {"average_pooling3d",
     with_default<AveragePooling3D, Pooling3DOptions, nn::Triple, kPoolSize, 2>},
    {"up_sampling1d", with_default<UpSampling1D, SimpleOptions, std::int64_t, kSize, 2>},
    {"up_sampling2d", with_default<UpSampling2D, UpSampling2DOptions, nn::Pair, kSize, 2>},
    {"global_average_pooling2d", plain<GlobalAveragePooling2D, GlobalPooling2DOptions>},
    {"global_max_pooling2d", plain<GlobalMaxPooling2D, GlobalPooling2DOptions>},
    {"global_average_pooling3d", plain<GlobalAveragePooling3D, GlobalPooling2DOptions>},
    {"global_max_pooling3d", plain<GlobalMaxPooling3D, GlobalPooling2DOptions>},
    {"batch_normalization", plain<BatchNormalization, BatchNormalizationOptions>},
    {"layer_normalization", plain<LayerNormalization, LayerNormalizationOptions>},
    {"group_normalization",
     with_default<GroupNormalization, GroupNormalizationOptions, std::int64_t, kGroups, 32>},
    {"rms_normalization", plain<RMSNormalization, RMSNormalizationOptions>},
    {"unit_normalization", plain<UnitNormalization>},
    {"multi_head_attention", multi_head_attention},
    {"dropout", with_argument<Dropout, SimpleOptions, double, kRate>},
    {"spatial_dropout1d", with_argument<SpatialDropout1D, SimpleOptions, double, kRate>},
    {"spatial_dropout2d", with_argument<SpatialDropout2D, SimpleOptions, double, kRate>},
    {"flatten", plain<Flatten>},
    {"identity", plain<Identity>},
    {"permute", with_argument<Permute, SimpleOptions, std::vector<std::int64_t>, kDims>},
    {"repeat_vector", with_argument<RepeatVector, SimpleOptions, std::int64_t, kN>},
    {"reshape", with_argument<Reshape, SimpleOptions, Shape, kTargetShape>},
    {"activation", with_argument<Activation, SimpleOptions, ActivationName, kActivation>},
    {"relu", plain<ReLU, ReLUOptions>},
    {"leaky_relu", leaky_relu},
    {"elu", elu},
    {"prelu", plain<PReLU, PReLUOptions>},
    {"softmax", plain<Softmax, SoftmaxOptions>},
    {"rescaling", rescaling},
    {"normalization", plain<Normalization, NormalizationOptions>},
    {"discretization", plain<Discretization, DiscretizationOptions>},
    {"category_encoding",
     with_argument<CategoryEncoding, CategoryEncodingOptions, std::int64_t, kNumTokens>},
    {"integer_lookup", plain<IntegerLookup, IntegerLookupOptions>},
    {"zero_padding2d", zero_padding2d},
    {"embedding", embedding},
    {"position_embedding",
     with_argument<PositionEmbedding, PositionEmbeddingOptions, std::int64_t, kSequenceLength>},
    {"lstm", with_argument<LSTM, LSTMOptions, std::int64_t, kUnits>},
    {"gru", with_argument<GRU, GRUOptions, std::int64_t, kUnits>},
    {"simple_rnn", with_argument<SimpleRNN, SimpleRNNOptions, std::int64_t, kUnits>},
    {"bidirectional", wrapper<Bidirectional, BidirectionalOptions>},
    {"time_distributed", wrapper<TimeDistributed, SimpleOptions>},
    {"add", plain<Add>},
    {"subtract", plain<Subtract>},
    {"multiply", plain<Multiply>},
    {"average", plain<Average>},
    {"maximum", plain<Maximum>},
    {"concatenate", plain<Concatenate, ConcatenateOptions>},
};

}  // namespace
}  // namespace tandem::layers::of_json

namespace tandem {

Layer layer_from_json(const Json& json, const std::string& path) {
  return typed_from_json(std::span(layers::of_json::kTable), json, path);
}

}  // namespace tandem
