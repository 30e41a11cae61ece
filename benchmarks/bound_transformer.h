// The layers of a transformer, in oneDNN primitives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "bound_layers.h"

namespace bench {

class TransformerLayers : public ConvolutionLayers {
 public:
  using ConvolutionLayers::ConvolutionLayers;

  ActivationRef layer_norm(const ActivationRef& x) {
    const Dims in = x->y.get_desc().dims();
    ActivationRef y = make_value(in);
    const auto xd = x->y.get_desc();
    const auto flags = normalization_flags::use_scale | normalization_flags::use_shift;
    const layer_normalization_forward::primitive_desc forward(
        layer_normalization_forward::desc(prop_kind::forward_training, xd, 1e-5f, flags), engine_);
    const memory scale = filled_vector(in[1]), shift = filled_vector(in[1]);
    const memory mean = make(forward.mean_desc()), variance = make(forward.variance_desc());
    add(forward_, layer_normalization_forward(forward),
        {{DNNL_ARG_SRC, x->y},
         {DNNL_ARG_SCALE, scale},
         {DNNL_ARG_SHIFT, shift},
         {DNNL_ARG_MEAN, mean},
         {DNNL_ARG_VARIANCE, variance},
         {DNNL_ARG_DST, y->y}});
    on_backward(y, [=, this] {
      const layer_normalization_backward::primitive_desc backward(
          layer_normalization_backward::desc(prop_kind::backward, xd, xd, 1e-5f, flags), engine_,
          forward);
      write_gradient(x, [&](const memory& dx) {
        add(backward_, layer_normalization_backward(backward),
            {{DNNL_ARG_SRC, x->y},
             {DNNL_ARG_SCALE, scale},
             {DNNL_ARG_SHIFT, shift},
             {DNNL_ARG_MEAN, mean},
             {DNNL_ARG_VARIANCE, variance},
             {DNNL_ARG_DIFF_DST, y->dy},
             {DNNL_ARG_DIFF_SRC, dx},
             {DNNL_ARG_DIFF_SCALE, make(vector_desc(in[1]))},
             {DNNL_ARG_DIFF_SHIFT, make(vector_desc(in[1]))}});
      });
    });
    return y;
  }

  ActivationRef gelu(const ActivationRef& x) {
    ActivationRef y = make_value(x->y.get_desc().dims());
    const auto desc = x->y.get_desc();
    const auto kind = algorithm::eltwise_gelu_erf;
    const eltwise_forward::primitive_desc forward(
        eltwise_forward::desc(prop_kind::forward_training, kind, desc, 0.0f, 0.0f), engine_);
    add(forward_, eltwise_forward(forward), {{DNNL_ARG_SRC, x->y}, {DNNL_ARG_DST, y->y}});
    on_backward(y, [=, this] {
      const eltwise_backward::primitive_desc backward(
          eltwise_backward::desc(kind, desc, desc, 0.0f, 0.0f), engine_, forward);
      write_gradient(x, [&](const memory& dx) {
        add(backward_, eltwise_backward(backward),
            {{DNNL_ARG_SRC, x->y}, {DNNL_ARG_DIFF_DST, y->dy}, {DNNL_ARG_DIFF_SRC, dx}});
      });
    });
    return y;
  }

  // Attention over `x`, which has query, key and value side by side: [batch * length, 3 * width].
  // Heads stay in the layout of the projections. All scores are computed: there is no mask.
  ActivationRef attention(const ActivationRef& x, memory::dim heads, memory::dim length) {
    const Dims in = x->y.get_desc().dims();
    const AttentionSizes sizes{in[0] / length, heads, length, in[1] / 3};
    ActivationRef y = make_value({in[0], sizes.width});
    const memory scores = make(square(sizes, false)), slopes = make(square(sizes, false));
    product(forward_, sizes, heads_of(x->y, sizes, kQuery, false),
            heads_of(x->y, sizes, kKey, true), scores);
    const softmax_forward::primitive_desc softmax(
        softmax_forward::desc(prop_kind::forward_training, scores.get_desc(), 3), engine_);
    add(forward_, softmax_forward(softmax), {{DNNL_ARG_SRC, scores}, {DNNL_ARG_DST, scores}});
    product(forward_, sizes, scores, heads_of(x->y, sizes, kValue, false),
            heads_of(y->y, sizes, kWhole, false));

    on_backward(y, [=, this] {
      const memory dy = heads_of(y->dy, sizes, kWhole, false);
      const auto turned = [&](const memory& whole) {
        return memory(square(sizes, true), engine_, whole.get_data_handle());
      };
      write_gradient(x, [&](const memory& dx) {
        product(backward_, sizes, turned(scores), dy, heads_of(dx, sizes, kValue, false));
        product(backward_, sizes, dy, heads_of(x->y, sizes, kValue, true), slopes);
        const auto desc = scores.get_desc();
        const softmax_backward::primitive_desc backward(softmax_backward::desc(desc, desc, 3),
                                                        engine_, softmax);
        add(backward_, softmax_backward(backward),
            {{DNNL_ARG_DST, scores}, {DNNL_ARG_DIFF_DST, slopes}, {DNNL_ARG_DIFF_SRC, slopes}});
        product(backward_, sizes, slopes, heads_of(x->y, sizes, kKey, false),
                heads_of(dx, sizes, kQuery, false));
        product(backward_, sizes, turned(slopes), heads_of(x->y, sizes, kQuery, false),
                heads_of(dx, sizes, kKey, false));
      });
    });
    return y;
  }

 private:
  struct AttentionSizes {
    memory::dim batch, heads, length, width;
  };
  enum Part : std::int8_t { kQuery, kKey, kValue, kWhole };  // of a row

  memory::desc square(const AttentionSizes& sizes, bool transposed) const {
    return {{sizes.batch, sizes.heads, sizes.length, sizes.length},
            type_,
            transposed ? Tag::abdc : Tag::abcd};
  }

  // [batch, heads, length, depth], or with the last two axes swapped.
  memory heads_of(const memory& rows, const AttentionSizes& sizes, Part part,
                  bool transposed) const {
    const memory::dim depth = sizes.width / sizes.heads;
    const memory::dim row = part == kWhole ? sizes.width : 3 * sizes.width;
    Dims dims{sizes.batch, sizes.heads, sizes.length, depth};
    Dims strides{sizes.length * row, depth, row, 1};
    if (transposed) {
      std::swap(dims[2], dims[3]);
      std::swap(strides[2], strides[3]);
    }
    auto* start = static_cast<std::byte*>(rows.get_data_handle());
    const memory::dim first = part == kWhole ? 0 : part * sizes.width;
    return {{dims, type_, strides}, engine_, start + static_cast<std::size_t>(first) * element()};
  }

  // A product of heads for each example: oneDNN 2.6 corrupts memory where two axes of a batch have
  // unrelated strides.
  void product(Program& program, const AttentionSizes& sizes, const memory& a, const memory& b,
               const memory& result) {
    for (memory::dim i = 0; i < sizes.batch; ++i) {
      const auto example = [&](const memory& whole) {
        const auto desc = whole.get_desc();
        const Dims dims = desc.dims();
        const auto* strides = desc.data.format_desc.blocking.strides;
        auto* start = static_cast<std::byte*>(whole.get_data_handle());
        return memory({Dims(dims.begin() + 1, dims.end()), type_, Dims(strides + 1, strides + 4)},
                      engine_, start + static_cast<std::size_t>(i * strides[0]) * element());
      };
      const memory left = example(a), right = example(b), out = example(result);
      const matmul::primitive_desc desc(
          matmul::desc(left.get_desc(), right.get_desc(), out.get_desc()), engine_);
      add(program, matmul(desc),
          {{DNNL_ARG_SRC, left}, {DNNL_ARG_WEIGHTS, right}, {DNNL_ARG_DST, out}});
    }
  }

  std::size_t element() const { return memory::data_type_size(type_); }
};

}  // namespace bench
