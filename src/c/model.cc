#include "c/model.h"

#include <algorithm>
#include <cmath>

#include "tandem/autodiff.h"
#include "tandem/autograd.h"
#include "train/model_impl.h"

namespace tandem::c {
namespace {

Shape with_batch(const Shape& example, std::int64_t batch) {
  Dims sizes{batch};
  for (const std::int64_t size : example.words()) sizes.push_back(size);
  return Shape(sizes);
}

std::size_t features_of(const Shape& batched) {
  std::size_t features = 1;
  for (int axis = 1; axis < batched.rank(); ++axis)
    features *= static_cast<std::size_t>(batched.word(axis));
  return features;
}

// A number that equal definitions share.
double fingerprint(std::string_view definition) {
  return static_cast<double>(std::hash<std::string_view>()(definition) >> 11);
}

}  // namespace

struct HostModel::Batch {
  Tensor x, y, weight;
  double examples = 0.0;
};

Handles<tandem_model, HostModel>& models() {
  static auto& all = *new Handles<tandem_model, HostModel>("model");
  return all;
}

HostModel::HostModel(const std::optional<std::string>& definition, std::shared_ptr<Group> group)
    : group_(std::move(group)) {
  const auto all = exchange(group_.get(), "model_create", 1, [&] {
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
  const Shape inputs = with_batch(text_.input, -1);
  result_ = text_.model.layer().base().output_shape(std::span(&inputs, 1));
  x_ = Moments(features_of(inputs));
  y_ = Moments(features_of(result_));
  if (!group_) return;
  if (impl_of(text_.model, "model_create").compiled)
    averaged_ = std::make_unique<parallel::DistributedDataParallel>(
        text_.model, parallel::DistributedDataParallelOptions{.process_group = group_->group,
                                                              .average_by_examples = false});
  else
    share(text_.model.variables());
}

// Gives all ranks the values of rank 0.
void HostModel::share(const std::vector<Variable>& variables) const {
  for (Variable variable : variables)
    variable.assign(
        comm::broadcast(variable.value(), group_->group.ranks().front(), {.group = group_->group}));
}

void HostModel::require_optimizer(const char* what) const {
  if (!impl_of(text_.model, what).compiled)
    fail<FailedPreconditionError>(
        "[{}] expected a model whose definition has \"optimizer\" and \"loss\", got one without",
        what);
}

HostArray HostModel::input(const tandem_array* x, const char* what) const {
  HostArray array(x, what, "x", text_.channels_first);
  array.expect(with_batch(text_.input, -1));
  if (array.shape().word(0) == 0) array.reject("expected at least one example, got none");
  return array;
}

HostArray HostModel::output(const tandem_array* y, const char* what, const char* name,
                            std::int64_t examples) const {
  HostArray array(y, what, name, text_.channels_first);
  if (array.floating()) {
    Dims sizes{examples};
    for (int axis = 1; axis < result_.rank(); ++axis) sizes.push_back(result_.word(axis));
    array.expect(Shape(sizes));
  } else if (array.shape().rank() < 1 || array.shape().word(0) != examples) {
    array.reject(fmt::format("expected {} examples as in x, got shape {}", examples,
                             array.shape().to_string()));
  }
  return array;
}

HostModel::Batch HostModel::read(const tandem_array* x, const tandem_array* y,
                                 const tandem_array* weight, const char* what) const {
  const HostArray inputs = input(x, what);
  const std::int64_t examples = inputs.shape().word(0);
  const HostArray targets = output(y, what, "y", examples);
  Batch batch;
  batch.examples = static_cast<double>(examples);
  batch.x = inputs.read(text_.dtype, normalizing(x_));
  batch.y = targets.read(text_.dtype, targets.floating() ? normalizing(y_) : Affine());
  if (weight) {
    const HostArray weights(weight, what, "weight");
    weights.expect({examples});
    batch.weight = weights.read(text_.dtype);
  }
  return batch;
}

Affine HostModel::normalizing(const Moments& moments) const {
  return text_.normalize ? moments.normalizing() : Affine();
}

double HostModel::mean_loss(const char* what, bool training, const tandem_array* x,
                            const tandem_array* y, const tandem_array* weight) {
  Tensor loss;
  const losses::Loss& function = impl_of(text_.model, what).loss;
  const bool sum = function.reduction() == losses::Reduction::kSum;
  double share = 1.0;  // of this rank: its number of examples, for a mean
  const auto all = exchange(group_.get(), what, 2, [&] {
    require_optimizer(what);
    const Batch batch = read(x, y, weight, what);
    if (!sum) share = batch.examples;
    loss = function(batch.y, text_.model(batch.x, CallOptions{.training = training}), batch.weight);
    return std::vector<double>{loss.item() * share, share};
  });
  double total = 0.0, shares = 0.0;
  for (const auto& rank : all) {
    total += rank[0];
    shares += rank[1];
  }
  if (sum) shares = 1.0;
  // The ranks' gradients are averaged.
  if (const double factor = share * ranks() / shares; training) {
    const optimizers::Optimizer& optimizer = text_.model.optimizer();
    step(optimizer.scale_loss(factor == 1.0 ? loss : loss * factor), {});
  }
  return total / shares;
}

// Takes an optimizer step with the gradients of `result`, averaged over the ranks. `gradient`: with
// respect to `result`; undefined for a scalar.
void HostModel::step(const Tensor& result, const Tensor& gradient) {
  text_.model.zero_grad();
  if (gradient.defined())
    result.backward(gradient);
  else
    result.backward();
  const std::vector<Variable> variables = text_.model.trainable_variables();
  std::vector<Tensor> gradients;
  for (const Variable& variable : variables) gradients.push_back(variable.grad());
  optimizers::Optimizer optimizer = text_.model.optimizer();
  optimizer.apply_gradients(std::move(gradients), variables);
  text_.model.zero_grad();
  if (group_) share(text_.model.non_trainable_variables());
}

double HostModel::train(const tandem_array* x, const tandem_array* y, const tandem_array* weight) {
  return mean_loss("train", true, x, y, weight);
}

double HostModel::evaluate(const tandem_array* x, const tandem_array* y) {
  const NoGradScope no_gradients;
  return mean_loss("evaluate", false, x, y, nullptr);
}

void HostModel::predict(const tandem_array* x, const tandem_array* y) const {
  const NoGradScope no_gradients;
  const HostArray inputs = input(x, "predict");
  const HostArray results = output(y, "predict", "y", inputs.shape().word(0));
  results.expect_writable();
  const Tensor result =
      text_.model(inputs.read(text_.dtype, normalizing(x_)), CallOptions{.training = false});
  results.write(result, text_.normalize ? y_.restoring() : Affine());
}

void HostModel::backward(const tandem_array* x, const tandem_array* dy, bool train,
                         const tandem_array* dx) {
  Tensor inputs, result, gradient;
  std::optional<HostArray> to;
  const auto forward = [&] {
    if (train) require_optimizer("backward");
    const HostArray from = input(x, "backward");
    const HostArray given = output(dy, "backward", "dy", from.shape().word(0));
    if (!given.floating()) given.reject("expected float32 or float64, got integers");
    if (dx) {
      to.emplace(dx, "backward", "dx", text_.channels_first);
      to->expect(from.shape());
      to->expect_writable();
      if (!from.floating()) to->reject("expected none, because x has integers");
    }
    inputs = from.read(text_.dtype, normalizing(x_));
    if (dx) inputs.set_requires_grad();
    gradient = given.read(text_.dtype, text_.normalize ? y_.gradient_from_host() : Affine());
    result = text_.model(inputs, CallOptions{.training = train});
    if (gradient.dtype() != result.dtype()) gradient = cast(gradient, result.dtype());
    return std::vector<double>();
  };
  Tensor of_inputs;
  if (train) {
    exchange(group_.get(), "backward", 0, forward);
    // The ranks' gradients are averaged, but are to be summed.
    const double factor = ranks() * text_.model.optimizer().loss_scale();
    step(result, factor == 1.0 ? gradient : gradient * factor);
    if (dx) of_inputs = inputs.grad() / factor;
  } else {
    forward();
    if (dx) of_inputs = autograd::grad({result}, {inputs}, {.grad_outputs = {gradient}}).front();
  }
  if (dx) to->write(of_inputs, text_.normalize ? x_.gradient_to_host() : Affine());
}

void HostModel::observe(const tandem_array* x, const tandem_array* y) {
  const auto moments_of = [](const HostArray& array, std::size_t features) {
    const std::vector<double> values = array.values();
    for (std::size_t i = 0; i < values.size(); ++i)
      if (!std::isfinite(values[i]))
        array.reject(fmt::format("expected finite numbers, got {} at element {}", values[i], i));
    return Moments::of(values, features);
  };
  const std::size_t of_x = 1 + 2 * x_.features(), of_y = 1 + 2 * y_.features();
  const auto all = exchange(group_.get(), "model_observe", of_x + of_y, [&] {
    if (!text_.normalize)
      fail<FailedPreconditionError>(
          "[model_observe] expected a model whose definition has \"normalize\": true");
    const HostArray inputs = input(x, "model_observe");
    const HostArray targets = output(y, "model_observe", "y", inputs.shape().word(0));
    std::vector<double> numbers = moments_of(inputs, x_.features()).numbers();
    const Moments mine =
        targets.floating() ? moments_of(targets, y_.features()) : Moments(y_.features());
    const std::vector<double> more = mine.numbers();
    numbers.insert(numbers.end(), more.begin(), more.end());
    return numbers;
  });
  for (const std::vector<double>& rank : all) {
    const std::span<const double> numbers(rank);
    x_.add(Moments::from_numbers(numbers.first(of_x)));
    y_.add(Moments::from_numbers(numbers.subspan(of_x)));
  }
}

void HostModel::spec(std::int32_t output, tandem_array& spec) const {
  if (output != 0 && output != 1)
    fail<InvalidArgumentError>("[model_spec] expected output 0 or 1, got {}", output);
  Shape shape = output == 0 ? with_batch(text_.input, -1) : result_;
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
  require_optimizer("model_get");
  const optimizers::Optimizer& optimizer = text_.model.optimizer();
  return name == "step" ? static_cast<double>(optimizer.iterations()) : optimizer.learning_rate();
}

void HostModel::set(std::string_view name, double value) {
  if (name != "learning_rate")
    fail<NotFoundError>("[model_set] expected \"learning_rate\", got \"{}\"", name);
  if (!std::isfinite(value) || value < 0.0)
    fail<InvalidArgumentError>("[model_set] expected a learning rate of at least 0, got {}", value);
  require_optimizer("model_set");
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
