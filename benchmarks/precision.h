// The layers of the benchmarks' models, in float32 or in mixed precision. Mixed precision is that
// of torch.autocast: weights and sums in float32; products, convolutions and attention in bfloat16.
#pragma once

#include <tandem/tandem.h>

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace bench {

namespace td = tandem;

inline td::Tensor as(const td::Tensor& x, td::DType dtype) {
  return x.dtype() == dtype ? x : td::cast(x, dtype);
}

// Dense in bfloat16.
class MixedDense final : public td::LayerBase {
 public:
  MixedDense(std::int64_t units, const std::string& activation, bool use_bias)
      : LayerBase(""),
        units_(units),
        activation_(td::nn::activation_from_name(activation)),
        use_bias_(use_bias) {}

  std::string kind() const override { return "mixed_dense"; }
  void build(std::span<const td::Shape> inputs) override {
    kernel_ = add_weight("kernel", {inputs[0].dim(-1), units_}, td::initializers::glorot_uniform());
    if (use_bias_) bias_ = add_weight("bias", {units_}, td::initializers::zeros());
  }
  td::Tensor call(std::span<const td::Tensor> inputs, const td::CallOptions&) override {
    return td::nn::dense(as(inputs[0], td::bfloat16), as(kernel_, td::bfloat16),
                         use_bias_ ? as(bias_, td::bfloat16) : td::Tensor(), activation_);
  }
  td::Shape output_shape(std::span<const td::Shape> inputs) const override {
    td::Shape result = inputs[0];
    result.set(result.rank() - 1, units_);
    return result;
  }

 private:
  std::int64_t units_;
  td::nn::Activation activation_;
  bool use_bias_;
  td::Variable kernel_;
  td::Variable bias_;
};

// Conv2D in bfloat16.
class MixedConv2D final : public td::LayerBase {
 public:
  MixedConv2D(std::int64_t filters, std::int64_t window, const td::layers::Conv2DOptions& options)
      : LayerBase(""), filters_(filters), window_(window), use_bias_(options.use_bias) {
    options_ = {.strides = options.strides,
                .padding = td::nn::padding_from_name(options.padding),
                .activation = td::nn::activation_from_name(options.activation)};
    declare_input_shape(options.input_shape);
  }

  std::string kind() const override { return "mixed_conv2d"; }
  void build(std::span<const td::Shape> inputs) override {
    kernel_ = add_weight("kernel", {window_, window_, inputs[0].dim(-1), filters_},
                         td::initializers::glorot_uniform());
    if (use_bias_) bias_ = add_weight("bias", {filters_}, td::initializers::zeros());
  }
  td::Tensor call(std::span<const td::Tensor> inputs, const td::CallOptions&) override {
    return td::nn::conv2d(as(inputs[0], td::bfloat16), as(kernel_, td::bfloat16),
                          use_bias_ ? as(bias_, td::bfloat16) : td::Tensor(), options_);
  }
  td::Shape output_shape(std::span<const td::Shape> inputs) const override {
    td::Shape result = inputs[0];
    const std::int64_t strides[] = {options_.strides.height, options_.strides.width};
    for (int axis : {1, 2}) {
      const std::int64_t stride = strides[axis - 1];
      const std::int64_t size = inputs[0][axis];
      result.set(axis, options_.padding == td::nn::Padding::kSame ? (size + stride - 1) / stride
                                                                  : (size - window_) / stride + 1);
    }
    result.set(3, filters_);
    return result;
  }

 private:
  std::int64_t filters_;
  std::int64_t window_;
  bool use_bias_;
  td::nn::Conv2DOptions options_;
  td::Variable kernel_;
  td::Variable bias_;
};

// The sum of two tensors of one shape, in the wider of their dtypes.
class MixedAdd final : public td::LayerBase {
 public:
  MixedAdd() : LayerBase("") {}
  std::string kind() const override { return "mixed_add"; }
  td::Tensor call(std::span<const td::Tensor> inputs, const td::CallOptions&) override {
    const bool wide = inputs[0].dtype() == td::float32 || inputs[1].dtype() == td::float32;
    const td::DType dtype = wide ? td::float32 : td::bfloat16;
    return as(inputs[0], dtype) + as(inputs[1], dtype);
  }
  td::Shape output_shape(std::span<const td::Shape> inputs) const override { return inputs[0]; }
};

// MultiHeadAttention of a sequence to itself in bfloat16; no position sees a later one.
class MixedAttention final : public td::LayerBase {
 public:
  MixedAttention(std::int64_t width, std::int64_t heads)
      : LayerBase(""), width_(width), heads_(heads) {
    for (int i = 0; i < 4; ++i)
      projections_.push_back(std::make_shared<MixedDense>(width, "", true));
  }

  std::string kind() const override { return "mixed_attention"; }
  std::vector<td::Layer> children() const override { return projections_; }
  td::Tensor call(std::span<const td::Tensor> inputs, const td::CallOptions&) override {
    const std::int64_t length = inputs[0].dim(1);
    const auto project = [&](int i) {
      return td::reshape(projections_[i](inputs[0]), {-1, length, heads_, width_ / heads_});
    };
    const td::Tensor seen =
        td::nn::scaled_dot_product_attention(project(0), project(1), project(2), {.causal = true});
    return projections_[3](td::reshape(seen, {-1, length, width_}));
  }
  td::Shape output_shape(std::span<const td::Shape> inputs) const override { return inputs[0]; }

 private:
  std::int64_t width_;
  std::int64_t heads_;
  std::vector<td::Layer> projections_;  // query, key, value, result
};

// Makes layers of one precision.
class LayerFactory {
 public:
  explicit LayerFactory(td::DType compute) : mixed_(compute == td::bfloat16) {}

  td::Layer dense(std::int64_t units, const std::string& activation = "",
                  bool use_bias = true) const {
    if (mixed_) return std::make_shared<MixedDense>(units, activation, use_bias);
    return td::layers::Dense(units, {.activation = activation, .use_bias = use_bias});
  }
  td::Layer conv(std::int64_t filters, std::int64_t window,
                 const td::layers::Conv2DOptions& options) const {
    if (mixed_) return std::make_shared<MixedConv2D>(filters, window, options);
    return td::layers::Conv2D(filters, window, options);
  }
  td::Layer causal_attention(std::int64_t width, std::int64_t heads) const {
    if (mixed_) return std::make_shared<MixedAttention>(width, heads);
    return td::layers::MultiHeadAttention(heads, width / heads, {.use_causal_mask = true});
  }
  td::Layer add() const {
    if (mixed_) return std::make_shared<MixedAdd>();
    return td::layers::Add();
  }

 private:
  bool mixed_;
};

}  // namespace bench
