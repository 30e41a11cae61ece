// The layers of the bound: each adds the oneDNN primitives of its forward and backward pass.
#pragma once

#include "bound_model.h"

namespace bench {

using namespace dnnl;  // NOLINT: the bound uses nothing else

class ConvolutionLayers : public PrimitiveModel {
 public:
  using PrimitiveModel::PrimitiveModel;

  ActivationRef conv(const ActivationRef& x, memory::dim filters, memory::dim kernel,
                     memory::dim stride, memory::dim pad, bool bias_and_relu) {
    const Dims in = x->y.get_desc().dims();
    const auto out_size = [&](memory::dim size) { return (size + 2 * pad - kernel) / stride + 1; };
    ActivationRef y = make_value({in[0], filters, out_size(in[2]), out_size(in[3])});
    const Dims weight_dims{filters, in[1], kernel, kernel}, strides{stride, stride}, pads{pad, pad};
    const auto any_weights = memory::desc(weight_dims, type_, Tag::any);
    const auto any_gradient = memory::desc(weight_dims, Type::f32, Tag::any);
    const auto bias = bias_and_relu ? vector_desc(filters) : memory::desc();
    const auto xd = x->y.get_desc(), yd = y->y.get_desc();

    const auto forward_desc =
        convolution_forward::desc(prop_kind::forward_training, algorithm::convolution_direct, xd,
                                  any_weights, bias, yd, strides, pads, pads);
    const convolution_forward::primitive_desc forward(
        forward_desc, bias_and_relu ? relu_post_op() : primitive_attr(), engine_);
    Args args{{DNNL_ARG_SRC, x->y},
              {DNNL_ARG_WEIGHTS, weights(forward.weights_desc(), weight_dims)},
              {DNNL_ARG_DST, y->y}};
    if (bias_and_relu) args[DNNL_ARG_BIAS] = make(bias);
    add(forward_, convolution_forward(forward), args);

    on_backward(y, [=, this] {
      if (bias_and_relu) relu_backward(y);
      const convolution_backward_weights::primitive_desc to_weights(
          convolution_backward_weights::desc(algorithm::convolution_direct, xd, any_gradient, bias,
                                             yd, strides, pads, pads),
          engine_, forward);
      Args weight_args{{DNNL_ARG_SRC, x->y},
                       {DNNL_ARG_DIFF_DST, y->dy},
                       {DNNL_ARG_DIFF_WEIGHTS, make(to_weights.diff_weights_desc())}};
      if (bias_and_relu) weight_args[DNNL_ARG_DIFF_BIAS] = make(bias);
      add(backward_, convolution_backward_weights(to_weights), weight_args);
      if (!x->wanted) return;
      const convolution_backward_data::primitive_desc to_data(
          convolution_backward_data::desc(algorithm::convolution_direct, xd, any_weights, yd,
                                          strides, pads, pads),
          engine_, forward);
      write_gradient(x, [&](const memory& dx) {
        add(backward_, convolution_backward_data(to_data),
            {{DNNL_ARG_DIFF_DST, y->dy},
             {DNNL_ARG_WEIGHTS, weights(to_data.weights_desc(), weight_dims)},
             {DNNL_ARG_DIFF_SRC, dx}});
      });
    });
    return y;
  }

  // The result of the last layer is float32.
  ActivationRef dense(const ActivationRef& x, memory::dim units, bool relu, bool last = false) {
    const Dims in = x->y.get_desc().dims();
    ActivationRef y = make_value({in[0], units}, last ? Type::f32 : type_);
    const Dims weight_dims{units, in[1]};
    const auto any_weights = memory::desc(weight_dims, type_, Tag::any);
    const auto any_gradient = memory::desc(weight_dims, Type::f32, Tag::any);
    const auto bias = vector_desc(units);
    const auto xd = x->y.get_desc(), yd = y->y.get_desc(), dyd = gradient_desc(y);
    const inner_product_forward::primitive_desc forward(
        inner_product_forward::desc(prop_kind::forward_training, xd, any_weights, bias, yd),
        relu ? relu_post_op() : primitive_attr(), engine_);
    add(forward_, inner_product_forward(forward),
        {{DNNL_ARG_SRC, x->y},
         {DNNL_ARG_WEIGHTS, weights(forward.weights_desc(), weight_dims)},
         {DNNL_ARG_BIAS, make(bias)},
         {DNNL_ARG_DST, y->y}});

    on_backward(y, [=, this] {
      if (relu) relu_backward(y);
      const inner_product_backward_weights::primitive_desc to_weights(
          inner_product_backward_weights::desc(xd, any_gradient, bias, dyd), engine_, forward);
      add(backward_, inner_product_backward_weights(to_weights),
          {{DNNL_ARG_SRC, x->y},
           {DNNL_ARG_DIFF_DST, y->dy},
           {DNNL_ARG_DIFF_WEIGHTS, make(to_weights.diff_weights_desc())},
           {DNNL_ARG_DIFF_BIAS, make(bias)}});
      if (!x->wanted) return;
      const inner_product_backward_data::primitive_desc to_data(
          inner_product_backward_data::desc(xd, any_weights, dyd), engine_, forward);
      write_gradient(x, [&](const memory& dx) {
        add(backward_, inner_product_backward_data(to_data),
            {{DNNL_ARG_DIFF_DST, y->dy},
             {DNNL_ARG_WEIGHTS, weights(to_data.weights_desc(), weight_dims)},
             {DNNL_ARG_DIFF_SRC, dx}});
      });
    });
    return y;
  }

  ActivationRef pool(const ActivationRef& x, algorithm kind, memory::dim window) {
    const Dims in = x->y.get_desc().dims();
    ActivationRef y = make_value({in[0], in[1], in[2] / window, in[3] / window});
    const auto xd = x->y.get_desc(), yd = y->y.get_desc();
    const Dims size{window, window}, none{0, 0};
    const pooling_forward::primitive_desc forward(
        pooling_forward::desc(prop_kind::forward_training, kind, xd, yd, size, size, none, none),
        engine_);
    Args args{{DNNL_ARG_SRC, x->y}, {DNNL_ARG_DST, y->y}};
    if (kind == algorithm::pooling_max) args[DNNL_ARG_WORKSPACE] = make(forward.workspace_desc());
    add(forward_, pooling_forward(forward), args);
    on_backward(y, [=, this] {
      const pooling_backward::primitive_desc backward(
          pooling_backward::desc(kind, xd, yd, size, size, none, none), engine_, forward);
      write_gradient(x, [&](const memory& dx) {
        Args back{{DNNL_ARG_DIFF_DST, y->dy}, {DNNL_ARG_DIFF_SRC, dx}};
        if (args.count(DNNL_ARG_WORKSPACE)) back[DNNL_ARG_WORKSPACE] = args.at(DNNL_ARG_WORKSPACE);
        add(backward_, pooling_backward(backward), back);
      });
    });
    return y;
  }

  // The same elements as [n, everything else]; channels last, as the framework's flatten.
  ActivationRef flatten(const ActivationRef& x) {
    const Dims in = x->y.get_desc().dims();
    const memory::desc flat({in[0], in[1] * in[2] * in[3]}, type_, Tag::ab);
    auto y = std::make_shared<Activation>();
    y->y = memory(flat, engine_, x->y.get_data_handle());
    on_backward(y, [=, this] {
      x->dy = memory(x->y.get_desc(), engine_, y->dy.get_data_handle());
      x->dy_memory = y->dy_memory;
    });
    return y;
  }

  ActivationRef batch_norm(const ActivationRef& x, bool relu) {
    const Dims in = x->y.get_desc().dims();
    ActivationRef y = make_value(in);
    const auto xd = x->y.get_desc();
    auto flags = normalization_flags::use_scale | normalization_flags::use_shift;
    if (relu) flags |= normalization_flags::fuse_norm_relu;
    const batch_normalization_forward::primitive_desc forward(
        batch_normalization_forward::desc(prop_kind::forward_training, xd, 1e-3f, flags), engine_);
    const auto channel = vector_desc(in[1]);
    const memory scale = filled_vector(in[1]), shift = filled_vector(in[1]), mean = make(channel),
                 variance = make(channel);
    Args args{{DNNL_ARG_SRC, x->y},  {DNNL_ARG_SCALE, scale},       {DNNL_ARG_SHIFT, shift},
              {DNNL_ARG_MEAN, mean}, {DNNL_ARG_VARIANCE, variance}, {DNNL_ARG_DST, y->y}};
    if (relu) args[DNNL_ARG_WORKSPACE] = make(forward.workspace_desc());
    add(forward_, batch_normalization_forward(forward), args);
    on_backward(y, [=, this] {
      const batch_normalization_backward::primitive_desc backward(
          batch_normalization_backward::desc(prop_kind::backward, xd, xd, 1e-3f, flags), engine_,
          forward);
      write_gradient(x, [&](const memory& dx) {
        Args back{{DNNL_ARG_SRC, x->y},
                  {DNNL_ARG_SCALE, scale},
                  {DNNL_ARG_SHIFT, shift},
                  {DNNL_ARG_MEAN, mean},
                  {DNNL_ARG_VARIANCE, variance},
                  {DNNL_ARG_DIFF_DST, y->dy},
                  {DNNL_ARG_DIFF_SRC, dx},
                  {DNNL_ARG_DIFF_SCALE, make(channel)},
                  {DNNL_ARG_DIFF_SHIFT, make(channel)}};
        if (relu) back[DNNL_ARG_WORKSPACE] = args.at(DNNL_ARG_WORKSPACE);
        add(backward_, batch_normalization_backward(backward), back);
      });
    });
    return y;
  }

  // a + b, or relu(a + b)
  ActivationRef sum(const ActivationRef& a, const ActivationRef& b, bool relu) {
    ActivationRef y = make_value(a->y.get_desc().dims());
    const auto desc = a->y.get_desc();
    const binary::primitive_desc adds(binary::desc(algorithm::binary_add, desc, desc, desc),
                                      relu ? relu_post_op() : primitive_attr(), engine_);
    add(forward_, binary(adds),
        {{DNNL_ARG_SRC_0, a->y}, {DNNL_ARG_SRC_1, b->y}, {DNNL_ARG_DST, y->y}});
    on_backward(y, [=, this] {
      if (relu) relu_backward(y);
      // Both branches share the gradient of the sum. Only the branch that runs last adds to it.
      for (const ActivationRef& branch : {a, b}) {
        branch->dy = y->dy;
        branch->dy_memory = y->dy_memory;
      }
    });
    return y;
  }

 protected:
  static primitive_attr relu_post_op() {
    post_ops ops;
    ops.append_eltwise(1.0f, algorithm::eltwise_relu, 0.0f, 0.0f);
    primitive_attr attr;
    attr.set_post_ops(ops);
    return attr;
  }

  // Turns y->dy into the gradient of the input of the relu, in place.
  void relu_backward(const ActivationRef& y) {
    const auto desc = y->y.get_desc();
    const auto kind = algorithm::eltwise_relu_use_dst_for_bwd;
    const eltwise_forward::primitive_desc hint(
        eltwise_forward::desc(prop_kind::forward_training, kind, desc, 0.0f, 0.0f), engine_);
    const eltwise_backward::primitive_desc backward(
        eltwise_backward::desc(kind, desc, desc, 0.0f, 0.0f), engine_, hint);
    add(backward_, eltwise_backward(backward),
        {{DNNL_ARG_DST, y->y}, {DNNL_ARG_DIFF_DST, y->dy}, {DNNL_ARG_DIFF_SRC, y->dy}});
  }
};

}  // namespace bench
