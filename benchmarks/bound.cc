// The bound: the bare oneDNN primitives of a case's forward and backward pass, one after the
// other, with no framework and no optimizer around them. Activations are plain (channels last);
// weights are in the packed layout that each primitive prefers; packing is not timed.
#include <omp.h>
#include <dnnl.hpp>

#include <functional>
#include <map>
#include <memory>
#include <random>
#include <stdexcept>
#include <unordered_map>
#include <vector>

#include "report.h"

static_assert(DNNL_VERSION_MAJOR == 2,
              "written for oneDNN 2: version 3 makes primitives otherwise");

namespace {

using namespace dnnl;  // NOLINT: the program uses nothing else
using Dims = memory::dims;
using Tag = memory::format_tag;
using Args = std::unordered_map<int, memory>;

struct Activation {
  memory y;            // the activation
  bool wanted = true;  // whether its gradient is asked for
  // While the backward pass is built: the gradient, once a primitive writes it, and its memory,
  // which is reused after the last reader.
  memory dy;
  std::shared_ptr<void> dy_memory;
};
using ActivationRef = std::shared_ptr<Activation>;

class PrimitiveModel {
 public:
  PrimitiveModel() : engine_(engine::kind::cpu, 0), stream_(engine_) {}

  ActivationRef input(const Dims& dims) {
    ActivationRef value = make_value(dims);
    value->wanted = false;
    fill(value->y, 1.0f);
    return value;
  }

  ActivationRef conv(const ActivationRef& x, memory::dim filters, memory::dim kernel,
                     memory::dim stride, memory::dim pad, bool bias_and_relu) {
    const Dims in = x->y.get_desc().dims();
    const auto out_size = [&](memory::dim size) { return (size + 2 * pad - kernel) / stride + 1; };
    ActivationRef y = make_value({in[0], filters, out_size(in[2]), out_size(in[3])});
    const Dims weight_dims{filters, in[1], kernel, kernel}, strides{stride, stride}, pads{pad, pad};
    const auto any_weights = memory::desc(weight_dims, memory::data_type::f32, Tag::any);
    const auto bias =
        bias_and_relu ? memory::desc({filters}, memory::data_type::f32, Tag::a) : memory::desc();
    const auto xd = x->y.get_desc(), yd = y->y.get_desc();

    const auto forward_desc =
        convolution_forward::desc(prop_kind::forward_training, algorithm::convolution_direct, xd,
                                  any_weights, bias, yd, strides, pads, pads);
    const convolution_forward::primitive_desc forward(
        forward_desc, bias_and_relu ? relu_post_op() : primitive_attr(), engine_);
    Args args{{DNNL_ARG_SRC, x->y},
              {DNNL_ARG_WEIGHTS, weights(forward.weights_desc(), weight_dims)},
              {DNNL_ARG_DST, y->y}};
    if (bias_and_relu) args[DNNL_ARG_BIAS] = memory(bias, engine_);
    add(forward_, convolution_forward(forward), args);

    on_backward(y, [=, this] {
      if (bias_and_relu) relu_backward(y);
      const convolution_backward_weights::primitive_desc to_weights(
          convolution_backward_weights::desc(algorithm::convolution_direct, xd, any_weights, bias,
                                             yd, strides, pads, pads),
          engine_, forward);
      Args weight_args{{DNNL_ARG_SRC, x->y},
                       {DNNL_ARG_DIFF_DST, y->dy},
                       {DNNL_ARG_DIFF_WEIGHTS, memory(to_weights.diff_weights_desc(), engine_)}};
      if (bias_and_relu) weight_args[DNNL_ARG_DIFF_BIAS] = memory(bias, engine_);
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

  ActivationRef dense(const ActivationRef& x, memory::dim units, bool relu) {
    const Dims in = x->y.get_desc().dims();
    ActivationRef y = make_value({in[0], units});
    const Dims weight_dims{units, in[1]};
    const auto any_weights = memory::desc(weight_dims, memory::data_type::f32, Tag::any);
    const auto bias = memory::desc({units}, memory::data_type::f32, Tag::a);
    const auto xd = x->y.get_desc(), yd = y->y.get_desc();
    const inner_product_forward::primitive_desc forward(
        inner_product_forward::desc(prop_kind::forward_training, xd, any_weights, bias, yd),
        relu ? relu_post_op() : primitive_attr(), engine_);
    add(forward_, inner_product_forward(forward),
        {{DNNL_ARG_SRC, x->y},
         {DNNL_ARG_WEIGHTS, weights(forward.weights_desc(), weight_dims)},
         {DNNL_ARG_BIAS, memory(bias, engine_)},
         {DNNL_ARG_DST, y->y}});

    on_backward(y, [=, this] {
      if (relu) relu_backward(y);
      const inner_product_backward_weights::primitive_desc to_weights(
          inner_product_backward_weights::desc(xd, any_weights, bias, yd), engine_, forward);
      add(backward_, inner_product_backward_weights(to_weights),
          {{DNNL_ARG_SRC, x->y},
           {DNNL_ARG_DIFF_DST, y->dy},
           {DNNL_ARG_DIFF_WEIGHTS, memory(to_weights.diff_weights_desc(), engine_)},
           {DNNL_ARG_DIFF_BIAS, memory(bias, engine_)}});
      if (!x->wanted) return;
      const inner_product_backward_data::primitive_desc to_data(
          inner_product_backward_data::desc(xd, any_weights, yd), engine_, forward);
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
    if (kind == algorithm::pooling_max)
      args[DNNL_ARG_WORKSPACE] = memory(forward.workspace_desc(), engine_);
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
    const memory::desc flat({in[0], in[1] * in[2] * in[3]}, memory::data_type::f32, Tag::ab);
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
    const auto channel = memory::desc({in[1]}, memory::data_type::f32, Tag::a);
    const memory scale(channel, engine_), shift(channel, engine_), mean(channel, engine_),
        variance(channel, engine_);
    fill(scale, 1.0f);
    fill(shift, 1.0f);
    Args args{{DNNL_ARG_SRC, x->y},  {DNNL_ARG_SCALE, scale},       {DNNL_ARG_SHIFT, shift},
              {DNNL_ARG_MEAN, mean}, {DNNL_ARG_VARIANCE, variance}, {DNNL_ARG_DST, y->y}};
    if (relu) args[DNNL_ARG_WORKSPACE] = memory(forward.workspace_desc(), engine_);
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
                  {DNNL_ARG_DIFF_SCALE, memory(channel, engine_)},
                  {DNNL_ARG_DIFF_SHIFT, memory(channel, engine_)}};
        if (relu) back[DNNL_ARG_WORKSPACE] = args.at(DNNL_ARG_WORKSPACE);
        add(backward_, batch_normalization_backward(backward), back);
      });
    });
    return y;
  }

  // relu(a + b)
  ActivationRef add_relu(const ActivationRef& a, const ActivationRef& b) {
    ActivationRef y = make_value(a->y.get_desc().dims());
    const auto desc = a->y.get_desc();
    const binary::primitive_desc sum(binary::desc(algorithm::binary_add, desc, desc, desc),
                                     relu_post_op(), engine_);
    add(forward_, binary(sum),
        {{DNNL_ARG_SRC_0, a->y}, {DNNL_ARG_SRC_1, b->y}, {DNNL_ARG_DST, y->y}});
    on_backward(y, [=, this] {
      relu_backward(y);
      // Both branches share the gradient of the sum. Only the branch that runs last adds to it.
      for (const ActivationRef& branch : {a, b}) {
        branch->dy = y->dy;
        branch->dy_memory = y->dy_memory;
      }
    });
    return y;
  }

  // The mean cross-entropy of random labels: its value is not needed, its gradient is.
  void loss(const ActivationRef& logits) {
    const Dims dims = logits->y.get_desc().dims();
    std::vector<int> labels(static_cast<std::size_t>(dims[0]));
    for (int& label : labels) label = static_cast<int>(random_() % static_cast<unsigned>(dims[1]));
    start_gradient(logits);
    forward_.push_back([=, y = logits->y, dy = logits->dy] {
      const auto* x = static_cast<const float*>(y.get_data_handle());
      auto* dx = static_cast<float*>(dy.get_data_handle());
      const auto classes = static_cast<std::size_t>(dims[1]);
      for (std::size_t row = 0; row < labels.size(); ++row) {
        float largest = x[row * classes], sum = 0;
        for (std::size_t c = 0; c < classes; ++c) largest = std::max(largest, x[row * classes + c]);
        for (std::size_t c = 0; c < classes; ++c)
          sum += dx[row * classes + c] = std::exp(x[row * classes + c] - largest);
        for (std::size_t c = 0; c < classes; ++c)
          dx[row * classes + c] =
              (dx[row * classes + c] / sum - (labels[row] == static_cast<int>(c) ? 1.0f : 0.0f)) /
              static_cast<float>(labels.size());
      }
    });
    for (auto maker = backward_makers_.rbegin(); maker != backward_makers_.rend(); ++maker)
      (*maker)();
    backward_makers_.clear();
  }

  void step() {
    for (const auto& run : forward_) run();
    for (const auto& run : backward_) run();
    stream_.wait();
  }

 private:
  using Program = std::vector<std::function<void()>>;

  void add(Program& program, const primitive& what, Args args) {
    program.push_back([this, what, args = std::move(args)] { what.execute(stream_, args); });
  }

  ActivationRef make_value(const Dims& dims) {
    const memory::desc desc(dims, memory::data_type::f32, dims.size() == 4 ? Tag::nhwc : Tag::ab);
    auto value = std::make_shared<Activation>();
    value->y = memory(desc, engine_);
    return value;
  }

  // `make` builds the backward pass of the operation that computes y. The gradient of y is released
  // afterwards.
  void on_backward(const ActivationRef& y, std::function<void()> make) {
    backward_makers_.push_back([y, make = std::move(make)] {
      make();
      y->dy_memory.reset();
    });
  }

  // Memory for a gradient: recycled memory if there is any, else new.
  void start_gradient(const ActivationRef& value) {
    const memory::desc desc = value->y.get_desc();
    const std::size_t bytes = desc.get_size();
    auto& free = free_[bytes];
    if (free.empty()) free.push_back(memory(desc, engine_));
    value->dy = memory(desc, engine_, free.back().get_data_handle());
    value->dy_memory = std::shared_ptr<void>(
        nullptr, [&free, owner = free.back()](void*) { free.push_back(owner); });
    kept_.push_back(free.back());
    free.pop_back();
  }

  void fill(const memory& plain, float scale) {
    std::normal_distribution<float> normal(0.0f, scale);
    auto* data = static_cast<float*>(plain.get_data_handle());
    for (std::size_t i = 0; i < plain.get_desc().get_size() / sizeof(float); ++i)
      data[i] = normal(random_);
  }

  // Random weights of He's variance in the layout that a primitive wants.
  memory weights(const memory::desc& desc, const Dims& dims) {
    memory plain(memory::desc(dims, memory::data_type::f32, dims.size() == 4 ? Tag::abcd : Tag::ab),
                 engine_);
    memory::dim fan_in = 1;
    for (std::size_t i = 1; i < dims.size(); ++i) fan_in *= dims[i];
    fill(plain, std::sqrt(2.0f / static_cast<float>(fan_in)));
    memory packed(desc, engine_);
    reorder(plain, packed).execute(stream_, plain, packed);
    stream_.wait();
    return packed;
  }

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

  // Calls write(memory) with x's gradient itself or, if that was written before, with memory that
  // is added to it.
  void write_gradient(const ActivationRef& x, const std::function<void(const memory&)>& write) {
    if (!x->dy_memory) {
      start_gradient(x);
      write(x->dy);
      return;
    }
    const auto desc = x->dy.get_desc();
    auto other = std::make_shared<Activation>();
    other->y = x->y;
    start_gradient(other);
    const memory more = other->dy;
    write(more);
    const binary::primitive_desc sum(binary::desc(algorithm::binary_add, desc, desc, desc),
                                     engine_);
    add(backward_, binary(sum),
        {{DNNL_ARG_SRC_0, x->dy}, {DNNL_ARG_SRC_1, more}, {DNNL_ARG_DST, x->dy}});
  }

  engine engine_;
  stream stream_;
  std::mt19937 random_{1};
  Program forward_, backward_;
  std::vector<std::function<void()>> backward_makers_;
  std::map<std::size_t, std::vector<memory>> free_;  // by size
  std::vector<memory> kept_;
};

void mlp(PrimitiveModel& net, memory::dim batch) {
  net.loss(
      net.dense(net.dense(net.dense(net.input({batch, 784}), 512, true), 512, true), 10, false));
}

void lenet(PrimitiveModel& net, memory::dim batch) {
  auto x = net.conv(net.input({batch, 1, 28, 28}), 32, 3, 1, 0, true);
  x = net.pool(net.conv(x, 64, 3, 1, 0, true), algorithm::pooling_max, 2);
  net.loss(net.dense(net.dense(net.flatten(x), 128, true), 10, false));
}

void resnet20(PrimitiveModel& net, memory::dim batch) {
  auto x = net.batch_norm(net.conv(net.input({batch, 3, 32, 32}), 16, 3, 1, 1, false), true);
  for (const memory::dim filters : {16, 32, 64})
    for (int block = 0; block < 3; ++block) {
      const memory::dim stride = block == 0 && filters != 16 ? 2 : 1;
      auto y = net.batch_norm(net.conv(x, filters, 3, stride, 1, false), true);
      y = net.batch_norm(net.conv(y, filters, 3, 1, 1, false), false);
      if (stride != 1) x = net.batch_norm(net.conv(x, filters, 1, stride, 0, false), false);
      x = net.add_relu(y, x);
    }
  net.loss(
      net.dense(net.flatten(net.pool(x, algorithm::pooling_avg_exclude_padding, 8)), 10, false));
}

// Bottlenecks of 64, 128, 256 and 512 filters, the stride in the 3x3 convolution.
void resnet50(PrimitiveModel& net, memory::dim batch) {
  auto x = net.batch_norm(net.conv(net.input({batch, 3, 224, 224}), 64, 7, 2, 3, false), true);
  x = net.pool(x, algorithm::pooling_max, 2);
  constexpr struct {
    memory::dim filters;
    int blocks;
  } kStages[] = {{64, 3}, {128, 4}, {256, 6}, {512, 3}};
  for (const auto& [filters, blocks] : kStages)
    for (int block = 0; block < blocks; ++block) {
      const memory::dim stride = block == 0 && filters != 64 ? 2 : 1;
      auto y = net.batch_norm(net.conv(x, filters, 1, 1, 0, false), true);
      y = net.batch_norm(net.conv(y, filters, 3, stride, 1, false), true);
      y = net.batch_norm(net.conv(y, 4 * filters, 1, 1, 0, false), false);
      if (block == 0) x = net.batch_norm(net.conv(x, 4 * filters, 1, stride, 0, false), false);
      x = net.add_relu(y, x);
    }
  net.loss(
      net.dense(net.flatten(net.pool(x, algorithm::pooling_avg_exclude_padding, 7)), 1000, false));
}

}  // namespace

int main(int argc, char** argv) {
  const bench::BenchOptions options = bench::parse(argc, argv);
  omp_set_num_threads(options.threads);
  PrimitiveModel net;
  if (options.name == "mlp64")
    mlp(net, 64);
  else if (options.name == "mlp512")
    mlp(net, 512);
  else if (options.name == "lenet64")
    lenet(net, 64);
  else if (options.name == "resnet20")
    resnet20(net, 128);
  else if (options.name == "resnet50")
    resnet50(net, 8);
  else
    throw std::invalid_argument("no case " + options.name);
  const double startup_ms = bench::since_start_ms();
  bench::measure("bound", options, {.startup_ms = startup_ms}, [&](int steps) {
    for (int i = 0; i < steps; ++i) net.step();
  });
}
