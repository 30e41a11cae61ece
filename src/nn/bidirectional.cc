// Bidirectional, and TimeDistributed: layers that apply others to sequences.
#include "core/dim.h"
#include "nn/naming.h"
#include "nn/recurrent.h"
#include "tandem/array.h"
#include "tandem/math.h"

namespace tandem::layers {
namespace {

using Merge = Tensor (*)(const Tensor& forward, const Tensor& backward);
constexpr NamedEntry<Merge> kMerges[] = {
    {"concat",
     [](const Tensor& a, const Tensor& b) {
       return concat({a, b}, -1);
     }},
    {"sum", [](const Tensor& a, const Tensor& b) { return a + b; }},
    {"mul", [](const Tensor& a, const Tensor& b) { return a * b; }},
    {"ave", [](const Tensor& a, const Tensor& b) { return (a + b) * 0.5; }},
};

// A handle with call_with_state().
class Direction final : public Recurrent {
 public:
  Direction() = default;
  explicit Direction(std::shared_ptr<RecurrentBase> layer) : Recurrent(std::move(layer)) {}
  RecurrentBase& recurrent() const { return recurrent_of("bidirectional", *this); }
};

class BidirectionalLayer final : public RecurrentBase {
 public:
  BidirectionalLayer(const RecurrentBase& forward, const RecurrentBase& backward,
                     const BidirectionalOptions& options)
      : RecurrentBase("bidirectional", options),
        options_(options),
        merge_(find_named(std::span<const NamedEntry<Merge>>(kMerges), "bidirectional merge_mode",
                          options.merge_mode)) {
    const bool backwards =
        options.backward_layer.defined() ? backward.go_backwards() : !forward.go_backwards();
    if (forward.go_backwards() == backwards)
      fail<InvalidArgumentError>(
          "[{}] expected a forward layer and a backward layer with different values of "
          "go_backwards, got {} twice",
          label(), backwards);
    if (forward.return_sequences() != backward.return_sequences())
      fail<InvalidArgumentError>(
          "[{}] expected layers with one value of return_sequences, got {} and {}", label(),
          forward.return_sequences(), backward.return_sequences());
    const bool sequences = forward.return_sequences();
    forward_ =
        Direction(forward.with("forward_" + forward.label(), forward.go_backwards(), sequences));
    backward_ = Direction(backward.with("backward_" + backward.label(), backwards, sequences));
    if (!options.input_shape.known()) declare_input_shape(forward.declared_input_shape());
  }

  std::vector<tandem::Layer> children() const override { return {forward_, backward_}; }
  bool casts_inputs() const override { return false; }
  std::shared_ptr<RecurrentBase> with(const std::string& name, bool go_backwards,
                                      bool) const override {
    if (go_backwards)
      fail<InvalidArgumentError>("[{}] expected layers of one direction, got one of both", label());
    BidirectionalOptions options = options_;
    options.name = name;
    return std::make_shared<BidirectionalLayer>(forward_.recurrent(), backward_.recurrent(),
                                                options);
  }
  bool go_backwards() const override { return false; }
  bool return_sequences() const override { return forward_.recurrent().return_sequences(); }
  std::size_t num_states() const override {
    return forward_.recurrent().num_states() + backward_.recurrent().num_states();
  }

  void build(std::span<const Shape> input_shapes) override {
    forward_.base().ensure_built(input_shapes.first(1));
    backward_.base().ensure_built(input_shapes.first(1));
  }

 private:
  RecurrentResult run(const Call& call) override {
    const auto split =
        call.state.begin() +
        (call.state.empty() ? 0 : static_cast<std::ptrdiff_t>(forward_.recurrent().num_states()));
    RecurrentResult result =
        forward_.call_with_state(call.sequence, {.initial_state = {call.state.begin(), split},
                                                 .mask = call.mask,
                                                 .training = call.training});
    RecurrentResult backward = backward_.call_with_state(
        call.sequence,
        {.initial_state = {split, call.state.end()}, .mask = call.mask, .training = call.training});
    // The outputs of a layer that goes backwards are in the order in which it made them.
    const Direction& reversed = forward_.recurrent().go_backwards() ? forward_ : backward_;
    if (return_sequences()) {
      Tensor& outputs = &reversed == &forward_ ? result.output : backward.output;
      outputs = reverse(outputs, {1});
    }
    result.output = merge_(result.output, backward.output);
    result.state.insert(result.state.end(), backward.state.begin(), backward.state.end());
    return result;
  }

  Shape infer(const Shape& sequence) const override {
    Shape result = forward_.base().output_shape({&sequence, 1});
    const Shape other = backward_.base().output_shape({&sequence, 1});
    const int last = result.rank() - 1;
    if (options_.merge_mode == "concat") {
      result.set(last, result.word(last) + other.word(last));
    } else if (result.word(last) != other.word(last)) {
      fail<InvalidArgumentError>("[{}] expected layers of as many units to {}, got {} and {}",
                                 label(), options_.merge_mode, result.word(last), other.word(last));
    }
    return result;
  }

  BidirectionalOptions options_;
  Merge merge_;
  Direction forward_, backward_;
};

class TimeDistributedLayer final : public UnaryLayer {
 public:
  TimeDistributedLayer(const tandem::Layer& layer, const SimpleOptions& options)
      : UnaryLayer("time_distributed", options), layer_{layer} {
    assign_unique_names(layer_, label());
  }

  std::vector<tandem::Layer> children() const override { return layer_; }
  bool casts_inputs() const override { return false; }
  bool makes_logits() const override {
    const auto* inner = dynamic_cast<const KindLayer*>(&layer_.front().base());
    return inner && inner->makes_logits();
  }

 private:
  void make_weights(const Shape& x) override {
    const Shape examples = steps_as_examples(x);
    layer_.front().base().ensure_built({&examples, 1});
  }

  Tensor run(const Tensor& x, const CallOptions& options) override {
    const Tensor y = layer_.front()(reshape(x, steps_as_examples(x.shape())), options);
    Dims sizes{x.size_word(0), x.size_word(1)};
    for (int axis = 1; axis < y.rank(); ++axis) sizes.push_back(y.size_word(axis));
    return reshape(y, Shape(sizes));
  }

  Shape infer(const Shape& x) const override {
    const Shape examples = steps_as_examples(x);
    const Shape results = layer_.front().base().output_shape({&examples, 1});
    Dims sizes{x.word(0), x.word(1)};
    for (int axis = 1; axis < results.rank(); ++axis) sizes.push_back(results.word(axis));
    return Shape(sizes);
  }

  // [batch, steps, ...] as [batch * steps, ...]; the number of examples is -1.
  Shape steps_as_examples(const Shape& x) const {
    if (x.rank() < 3) reject("an input of shape (batch, steps, ...) with at least 3 axes", x);
    Dims sizes{-1};
    for (int axis = 2; axis < x.rank(); ++axis) sizes.push_back(x.word(axis));
    return Shape(sizes);
  }

  std::vector<tandem::Layer> layer_;
};

}  // namespace

Bidirectional::Bidirectional(const tandem::Layer& layer, const BidirectionalOptions& options)
    : Recurrent(std::make_shared<BidirectionalLayer>(
          recurrent_of("bidirectional", layer),
          recurrent_of("bidirectional",
                       options.backward_layer.defined() ? options.backward_layer : layer),
          options)) {}

TimeDistributed::TimeDistributed(const tandem::Layer& layer, const SimpleOptions& options)
    : tandem::Layer(std::make_shared<TimeDistributedLayer>(layer, options)) {}

}  // namespace tandem::layers
