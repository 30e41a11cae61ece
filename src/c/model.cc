#include "c/model.h"

#include <algorithm>
#include <cmath>

#include "tandem/autodiff.h"
#include "train/model_impl.h"

namespace tandem::c {
namespace {

// A number that equal definitions share.
double fingerprint(std::string_view definition) {
  return static_cast<double>(std::hash<std::string_view>()(definition) >> 11);
}

online::LearnerOptions learner_options(const ModelText& text, const std::shared_ptr<Group>& group) {
  online::LearnerOptions options{.group = ranks_of(group)};
  if (!text.normalize) return options;
  options.normalize =
      online::Normalize{.per = text.normalize_per == "all"       ? online::Per::kAll
                               : text.normalize_per == "channel" ? online::Per::kChannel
                                                                 : online::Per::kFeature,
                        .freeze_after = text.normalize_freeze_after};
  return options;
}

void expect_arrays(const Arrays& given, std::size_t count, const char* what, const char* name) {
  const auto wanted = static_cast<std::int64_t>(count);
  if (given.count != wanted || (!given.first && wanted > 1))
    fail<InvalidArgumentError>("[{}] {}: expected {} of the model's definition, got {}", what, name,
                               wanted == 1 ? "the array" : fmt::format("the {} arrays", wanted),
                               given.first ? fmt::to_string(given.count) : "null");
}

// The name of an array in messages.
std::string name_of_array(const char* name, std::size_t at, std::size_t count) {
  return count == 1 ? name : fmt::format("{}[{}]", name, at);
}

std::vector<double> finite_values(const HostArray& array) {
  std::vector<double> values = array.values();
  for (std::size_t i = 0; i < values.size(); ++i)
    if (!std::isfinite(values[i]))
      array.reject(fmt::format("expected finite numbers, got {} at element {}", values[i], i));
  return values;
}

}  // namespace

Handles<tandem_model, HostModel>& models() {
  static auto& all = *new Handles<tandem_model, HostModel>("model");
  return all;
}

HostModel::HostModel(const std::optional<std::string>& definition, std::shared_ptr<Group> group)
    : group_(std::move(group)) {
  const auto all = online::exchange(ranks_of(group_), "model_create", 1, [&] {
    if (!definition) throw InvalidArgumentError("[model_create] expected a definition, got null");
    definition_ = *definition;
    text_ = read_model_text(definition_);
    return std::vector<double>{fingerprint(definition_)};
  });
  for (std::size_t rank = 1; rank < all.size(); ++rank)
    if (all[rank] != all[0])
      fail<InvalidArgumentError>(
          "[model_create] expected one definition on all ranks, got another on rank {}", rank);
  text_.dtype = text_.dtype == float64 ? float64 : float32;
  learner_ = std::make_shared<online::Learner::Impl>(text_.model, learner_options(text_, group_),
                                                     text_.dtype);
}

HostArray HostModel::input(const tandem_array* x, const char* what, bool none,
                           std::size_t at) const {
  const std::vector<Shape>& all = learner_->inputs();
  HostArray array(x, what, name_of_array("x", at, all.size()), text_.channels_first);
  array.expect(all[at]);
  if (array.shape().word(0) == 0 && !none) array.reject("expected at least one example, got none");
  return array;
}

HostArray HostModel::output(const tandem_array* y, const char* what, const char* name,
                            std::int64_t examples, std::size_t at) const {
  const std::vector<Shape>& all = learner_->results();
  HostArray array(y, what, name_of_array(name, at, all.size()), text_.channels_first);
  if (array.floating()) {
    const Shape& result = all[at];
    Dims sizes{examples};
    for (int axis = 1; axis < result.rank(); ++axis) sizes.push_back(result.word(axis));
    array.expect(Shape(sizes));
  } else if (array.shape().rank() < 1 || array.shape().word(0) != examples) {
    array.reject(fmt::format("expected {} examples as in x, got shape {}", examples,
                             array.shape().to_string()));
  }
  return array;
}

std::vector<HostArray> HostModel::inputs(const Arrays& x, const char* what, bool none) const {
  const std::size_t count = learner_->inputs().size();
  expect_arrays(x, count, what, "x");
  std::vector<HostArray> all;
  for (std::size_t at = 0; at < count; ++at) {
    all.push_back(input(x.first + at, what, none, at));
    const std::int64_t examples = all[0].shape().word(0);
    if (all[at].shape().word(0) != examples)
      all[at].reject(fmt::format("expected {} examples as in x[0], got {}", examples,
                                 all[at].shape().word(0)));
  }
  return all;
}

std::vector<HostArray> HostModel::outputs(const Arrays& y, const char* what,
                                          std::int64_t examples) const {
  const std::size_t count = learner_->results().size();
  expect_arrays(y, count, what, "y");
  std::vector<HostArray> all;
  for (std::size_t at = 0; at < count; ++at)
    all.push_back(output(y.first + at, what, "y", examples, at));
  return all;
}

online::Batch HostModel::read(const Arrays& x, const Arrays& y, const tandem_array* weight,
                              const char* what) const {
  const std::vector<HostArray> from = inputs(x, what, true);
  const std::int64_t examples = from[0].shape().word(0);
  const std::vector<HostArray> targets = outputs(y, what, examples);
  online::Batch batch{.x = {}, .y = {}, .weight = {}, .examples = examples};
  if (weight) {
    const HostArray weights(weight, what, "weight");
    weights.expect({examples});
    batch.weight = weights.read(text_.dtype);
  }
  if (examples == 0) return {};
  for (const HostArray& array : from)
    batch.x.push_back(
        array.read(text_.dtype, array.floating() ? learner_->normalizing_x() : Affine()));
  for (const HostArray& array : targets)
    batch.y.push_back(
        array.read(text_.dtype, array.floating() ? learner_->normalizing_y() : Affine()));
  return batch;
}

std::pair<Tensor, Tensor> HostModel::samples(const tandem_array* x, const tandem_array* y) const {
  const HostArray inputs = input(x, "window_push", true);
  const HostArray targets = output(y, "window_push", "y", inputs.shape().word(0));
  const DType kept = text_.normalize ? float64 : text_.dtype;
  return {inputs.read(kept), targets.read(kept)};
}

double HostModel::train(const Arrays& x, const Arrays& y, const tandem_array* weight) {
  return learner_->mean_loss("train", true, [&] { return read(x, y, weight, "train"); });
}

double HostModel::evaluate(const Arrays& x, const Arrays& y) {
  return learner_->mean_loss("evaluate", false, [&] { return read(x, y, nullptr, "evaluate"); });
}

void HostModel::predict(const Arrays& x, const Arrays& y) const {
  const NoGradScope no_gradients;
  const std::vector<HostArray> from = inputs(x, "predict", false);
  const std::vector<HostArray> to = outputs(y, "predict", from[0].shape().word(0));
  for (const HostArray& array : to) array.expect_writable();
  std::vector<Tensor> examples;
  for (const HostArray& array : from)
    examples.push_back(array.read(text_.dtype, learner_->normalizing_x()));
  const auto results = text_.model.call_all(examples, CallOptions{.training = false});
  for (std::size_t at = 0; at < to.size(); ++at) to[at].write(results[at], learner_->restoring_y());
}

void HostModel::backward(const tandem_array* x, const tandem_array* dy, bool train,
                         const tandem_array* dx) {
  std::optional<HostArray> to;
  const Tensor of_inputs =
      learner_->backward("backward", train, dx != nullptr, [&]() -> online::GivenGradient {
        learner_->expect_one("backward");
        const HostArray from = input(x, "backward", train);
        const HostArray given = output(dy, "backward", "dy", from.shape().word(0));
        if (!given.floating()) given.reject("expected float32 or float64, got integers");
        if (dx) {
          to.emplace(dx, "backward", "dx", text_.channels_first);
          to->expect(from.shape());
          to->expect_writable();
          if (!from.floating()) to->reject("expected none, because x has integers");
        }
        if (from.shape().word(0) == 0) return {};
        return {.x = from.read(text_.dtype, learner_->normalizing_x()),
                .dy = given.read(text_.dtype, learner_->gradient_from_y())};
      });
  if (of_inputs.defined()) to->write(of_inputs, learner_->gradient_to_x());
}

void HostModel::observe(const tandem_array* x, const tandem_array* y) {
  learner_->observe("model_observe", [&] {
    const HostArray inputs = input(x, "model_observe", true);
    const HostArray targets = output(y, "model_observe", "y", inputs.shape().word(0));
    online::Learner::Impl::Observed seen{
        .x = finite_values(inputs), .y = {}, .examples = inputs.shape().word(0)};
    if (targets.floating()) seen.y = finite_values(targets);
    return seen;
  });
}

void HostModel::spec(std::int32_t output, tandem_array& spec) const {
  const std::vector<Shape>& all = output % 2 == 0 ? learner_->inputs() : learner_->results();
  if (output < 0 || static_cast<std::size_t>(output / 2) >= all.size())
    fail<InvalidArgumentError>(
        "[model_spec] expected output 2 i for input i of {}, or 2 i + 1 for result i of {}, got {}",
        learner_->inputs().size(), learner_->results().size(), output);
  const Shape& shape = all[static_cast<std::size_t>(output / 2)];
  Dims sizes(shape.words().begin(), shape.words().end());
  if (text_.channels_first && sizes.size() > 2)
    std::rotate(sizes.begin() + 1, sizes.end() - 1, sizes.end());
  spec = {nullptr, text_.dtype == float64 ? TANDEM_FLOAT64 : TANDEM_FLOAT32, sizes.size(), {}, {}};
  std::ranges::copy(sizes.span(), spec.dims);
}

double HostModel::get(std::string_view name) const {
  if (name == "parameters") {
    std::int64_t elements = 0;
    for (const Variable& variable : text_.model.trainable_variables())
      elements += variable.shape().num_elements();
    return static_cast<double>(elements);
  }
  if (name != "step" && name != "learning_rate")
    fail<NotFoundError>(
        "[model_get] expected \"step\", \"learning_rate\" or \"parameters\", got \"{}\"", name);
  learner_->expect_optimizer("model_get");
  const optimizers::Optimizer& optimizer = text_.model.optimizer();
  return name == "step" ? static_cast<double>(optimizer.iterations()) : optimizer.learning_rate();
}

void HostModel::set(std::string_view name, double value) {
  if (name != "learning_rate")
    fail<NotFoundError>("[model_set] expected \"learning_rate\", got \"{}\"", name);
  if (!std::isfinite(value) || value < 0.0)
    fail<InvalidArgumentError>("[model_set] expected a learning rate of at least 0, got {}", value);
  learner_->expect_optimizer("model_set");
  learner_->expect_untrained("model_set");
  optimizers::Optimizer optimizer = text_.model.optimizer();
  optimizer.set_learning_rate(value);
}

Variable HostModel::weight(std::string_view name, const char* what) const {
  std::string known;
  for (const Variable& variable : text_.model.variables()) {
    if (variable.name() == name) return variable;
    known += (known.empty() ? "" : ", ") + variable.name();
  }
  fail<NotFoundError>("[{}] expected one of {}; got '{}'", what, known, name);
}

}  // namespace tandem::c
