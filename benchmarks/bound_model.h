// The base of the layers of the bound: a program of oneDNN primitives, its activations, and their
// gradients in recycled memory.
#pragma once

#include <dnnl.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <unordered_map>
#include <utility>
#include <vector>

static_assert(DNNL_VERSION_MAJOR == 2,
              "written for oneDNN 2: version 3 makes primitives otherwise");

namespace bench {

using Dims = dnnl::memory::dims;
using Tag = dnnl::memory::format_tag;
using Type = dnnl::memory::data_type;
using Args = std::unordered_map<int, dnnl::memory>;

struct Activation {
  dnnl::memory y;      // the activation
  bool wanted = true;  // whether its gradient is asked for
  // While the backward pass is built: the gradient, once a primitive writes it, and its memory,
  // which is reused after the last reader.
  dnnl::memory dy;
  std::shared_ptr<void> dy_memory;
};
using ActivationRef = std::shared_ptr<Activation>;

class PrimitiveModel {
 public:
  // Activations, their gradients and packed weights have this type; gradients of weights, biases,
  // moments and logits are float32.
  explicit PrimitiveModel(Type type)
      : type_(type), engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {}

  ActivationRef input(const Dims& dims, bool wanted = false) {
    ActivationRef value = make_value(dims);
    value->wanted = wanted;
    fill(value->y, 1.0f);
    return value;
  }

  // The mean cross-entropy of random labels: its value is not needed, its gradient is.
  void loss(const ActivationRef& logits) {
    const Dims dims = logits->y.get_desc().dims();
    std::vector<int> labels(static_cast<std::size_t>(dims[0]));
    for (int& label : labels) label = static_cast<int>(random_() % static_cast<unsigned>(dims[1]));
    start_gradient(logits);
    forward_.push_back([=, this, y = logits->y, dy = logits->dy] {
      const auto* x = static_cast<const float*>(y.get_data_handle());
      const auto classes = static_cast<std::size_t>(dims[1]);
      const auto rows = static_cast<std::ptrdiff_t>(labels.size());
#pragma omp parallel for
      for (std::ptrdiff_t i = 0; i < rows; ++i) {
        const auto row = static_cast<std::size_t>(i);
        float largest = x[row * classes], sum = 0;
        for (std::size_t c = 0; c < classes; ++c) largest = std::max(largest, x[row * classes + c]);
        for (std::size_t c = 0; c < classes; ++c) sum += std::exp(x[row * classes + c] - largest);
        for (std::size_t c = 0; c < classes; ++c) {
          const float one = labels[row] == static_cast<int>(c) ? 1.0f : 0.0f;
          const float slope = std::exp(x[row * classes + c] - largest) / sum - one;
          store(dy, row * classes + c, slope / static_cast<float>(rows));
        }
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

 protected:
  using Program = std::vector<std::function<void()>>;

  void add(Program& program, const dnnl::primitive& what, Args args) {
    program.push_back([this, what, args = std::move(args)] { what.execute(stream_, args); });
  }

  dnnl::memory::desc desc_of(const Dims& dims, Type type) const {
    return {dims, type, dims.size() == 4 ? Tag::nhwc : Tag::ab};
  }
  // The type and layout of a value's gradient.
  dnnl::memory::desc gradient_desc(const ActivationRef& value) const {
    return desc_of(value->y.get_desc().dims(), type_);
  }
  static dnnl::memory::desc vector_desc(dnnl::memory::dim size) {
    return {{size}, Type::f32, Tag::a};
  }
  dnnl::memory make(const dnnl::memory::desc& desc) const { return {desc, engine_}; }

  ActivationRef make_value(const Dims& dims) { return make_value(dims, type_); }
  ActivationRef make_value(const Dims& dims, Type type) {
    auto value = std::make_shared<Activation>();
    value->y = make(desc_of(dims, type));
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
    const dnnl::memory::desc desc = gradient_desc(value);
    auto& free = free_[desc.get_size()];
    if (free.empty()) free.push_back(make(desc));
    value->dy = dnnl::memory(desc, engine_, free.back().get_data_handle());
    value->dy_memory = std::shared_ptr<void>(
        nullptr, [&free, owner = free.back()](void*) { free.push_back(owner); });
    kept_.push_back(free.back());
    free.pop_back();
  }

  // Calls write(memory) with x's gradient itself or, if that was written before, with memory that
  // is added to it.
  void write_gradient(const ActivationRef& x,
                      const std::function<void(const dnnl::memory&)>& write) {
    if (!x->dy_memory) {
      start_gradient(x);
      write(x->dy);
      return;
    }
    const auto desc = x->dy.get_desc();
    auto other = std::make_shared<Activation>();
    other->y = x->y;
    start_gradient(other);
    const dnnl::memory more = other->dy;
    write(more);
    const dnnl::binary::primitive_desc sum(
        dnnl::binary::desc(dnnl::algorithm::binary_add, desc, desc, desc), engine_);
    add(backward_, dnnl::binary(sum),
        {{DNNL_ARG_SRC_0, x->dy}, {DNNL_ARG_SRC_1, more}, {DNNL_ARG_DST, x->dy}});
  }

  void fill(const dnnl::memory& memory, float scale) {
    const dnnl::memory::desc desc = memory.get_desc();
    const dnnl::memory plain = make(desc_of(desc.dims(), Type::f32));
    fill_plain(plain, scale);
    convert(plain, memory);
  }

  // Random weights of He's variance in the layout that a primitive wants.
  dnnl::memory weights(const dnnl::memory::desc& desc, const Dims& dims) {
    const dnnl::memory plain = make({dims, Type::f32, dims.size() == 4 ? Tag::abcd : Tag::ab});
    dnnl::memory::dim fan_in = 1;
    for (std::size_t i = 1; i < dims.size(); ++i) fan_in *= dims[i];
    fill_plain(plain, std::sqrt(2.0f / static_cast<float>(fan_in)));
    const dnnl::memory packed = make(desc);
    convert(plain, packed);
    return packed;
  }

  dnnl::memory filled_vector(dnnl::memory::dim size) {
    const dnnl::memory result = make(vector_desc(size));
    fill_plain(result, 1.0f);
    return result;
  }

  Type type_;
  dnnl::engine engine_;
  Program forward_, backward_;

 private:
  void fill_plain(const dnnl::memory& plain, float scale) {
    std::normal_distribution<float> normal(0.0f, scale);
    auto* data = static_cast<float*>(plain.get_data_handle());
    for (std::size_t i = 0; i < plain.get_desc().get_size() / sizeof(float); ++i)
      data[i] = normal(random_);
  }

  void convert(dnnl::memory from, dnnl::memory to) {
    dnnl::reorder(from, to).execute(stream_, from, to);
    stream_.wait();
  }

  void store(const dnnl::memory& to, std::size_t i, float value) const {
    if (type_ == Type::f32) {
      static_cast<float*>(to.get_data_handle())[i] = value;
      return;
    }
    const auto bits = std::bit_cast<std::uint32_t>(value);
    static_cast<std::uint16_t*>(to.get_data_handle())[i] =
        static_cast<std::uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
  }

  dnnl::stream stream_;
  std::mt19937 random_{1};
  std::vector<std::function<void()>> backward_makers_;
  std::map<std::size_t, std::vector<dnnl::memory>> free_;  // by size
  std::vector<dnnl::memory> kept_;
};

}  // namespace bench
