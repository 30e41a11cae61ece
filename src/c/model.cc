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

HostArray HostModel::input(const tandem_array* x, const char* what, bool none) const {
  HostArray array(x, what, "x", text_.channels_first);
  array.expect(learner_->input());
  if (array.shape().word(0) == 0 && !none) array.reject("expected at least one example, got none");
  return array;
}

HostArray HostModel::output(const tandem_array* y, const char* what, const char* name,
                            std::int64_t examples) const {
  HostArray array(y, what, name, text_.channels_first);
  if (array.floating()) {
    const Shape& result = learner_->result();
    Dims sizes{examples};
    for (int axis = 1; axis < result.rank(); ++axis) sizes.push_back(result.word(axis));
    array.expect(Shape(sizes));
  } else if (array.shape().rank() < 1 || array.shape().word(0) != examples) {
    array.reject(fmt::format("expected {} examples as in x, got shape {}", examples,
                             array.shape().to_string()));
  }
  return array;
}

online::Batch HostModel::read(const tandem_array* x, const tandem_array* y,
                              const tandem_array* weight, const char* what) const {
  const HostArray inputs = input(x, what, true);
  const std::int64_t examples = inputs.shape().word(0);
  const HostArray targets = output(y, what, "y", examples);
  online::Batch batch{.x = {}, .y = {}, .weight = {}, .examples = examples};
  if (weight) {
    const HostArray weights(weight, what, "weight");
    weights.expect({examples});
    batch.weight = weights.read(text_.dtype);
  }
  if (examples == 0) return {};
  batch.x = inputs.read(text_.dtype, inputs.floating() ? learner_->normalizing_x() : Affine());
  batch.y = targets.read(text_.dtype, targets.floating() ? learner_->normalizing_y() : Affine());
  return batch;
}

std::pair<Tensor, Tensor> HostModel::samples(const tandem_array* x, const tandem_array* y) const {
  const HostArray inputs = input(x, "window_push", true);
  const HostArray targets = output(y, "window_push", "y", inputs.shape().word(0));
  const DType kept = text_.normalize ? float64 : text_.dtype;
  return {inputs.read(kept), targets.read(kept)};
}

double HostModel::train(const tandem_array* x, const tandem_array* y, const tandem_array* weight) {
  return learner_->mean_loss("train", true, [&] { return read(x, y, weight, "train"); });
}

double HostModel::evaluate(const tandem_array* x, const tandem_array* y) {
  return learner_->mean_loss("evaluate", false, [&] { return read(x, y, nullptr, "evaluate"); });
}

void HostModel::predict(const tandem_array* x, const tandem_array* y) const {
  const NoGradScope no_gradients;
  const HostArray inputs = input(x, "predict", false);
  const HostArray results = output(y, "predict", "y", inputs.shape().word(0));
  results.expect_writable();
  const Tensor result = text_.model(inputs.read(text_.dtype, learner_->normalizing_x()),
                                    CallOptions{.training = false});
  results.write(result, learner_->restoring_y());
}

void HostModel::backward(const tandem_array* x, const tandem_array* dy, bool train,
                         const tandem_array* dx) {
  std::optional<HostArray> to;
  const Tensor of_inputs =
      learner_->backward("backward", train, dx != nullptr, [&]() -> online::GivenGradient {
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
  if (output != 0 && output != 1)
    fail<InvalidArgumentError>("[model_spec] expected output 0 or 1, got {}", output);
  const Shape& shape = output == 0 ? learner_->input() : learner_->result();
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
