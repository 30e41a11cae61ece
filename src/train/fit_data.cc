#include "train/fit_data.h"

#include <cmath>

#include "core/status.h"
#include "tandem/array.h"
#include "tandem/creation.h"
#include "tandem/math.h"

namespace tandem {

data::Dataset in_batches(const data::Dataset& data, std::int64_t batch_size, const char* what) {
  if (batch_size < 1)
    fail<InvalidArgumentError>("[{}] expected a batch_size of at least 1, got {}", what,
                               batch_size);
  return data.batch(batch_size);
}

void require_end(const data::Dataset& data, bool limited, const char* what, const char* option) {
  if (limited || data.cardinality() != data::kInfiniteCardinality) return;
  fail<InvalidArgumentError>(
      "[{0}] the dataset never ends (repeat() without a count): pass {1}, the number of batches to "
      "take",
      what, option);
}

namespace {

// The class numbers of (batch), (batch, 1) or one-hot targets (batch, classes), on the host.
std::vector<std::int64_t> classes_of(const Tensor& targets) {
  Tensor classes = targets;
  if (targets.rank() == 2)
    classes = targets.size_word(1) == 1 ? squeeze(targets, {1}) : argmax(targets, 1);
  if (classes.rank() != 1)
    fail<InvalidArgumentError>(
        "[fit] class_weight expected targets of class numbers, shape (batch,) or (batch, 1), or "
        "one-hot ones, (batch, classes); got shape {}",
        targets.shape().to_string());
  if (is_floating(classes.dtype())) classes = round(cast(classes, float32));
  return cast(classes, int64).to_vector<std::int64_t>();
}

}  // namespace

void check_class_weights(const std::map<std::int64_t, double>& weights) {
  for (const auto& [label, weight] : weights) {
    if (label < 0)
      fail<InvalidArgumentError>("[fit] class_weight expected classes of at least 0, got {}",
                                 label);
    if (!std::isfinite(weight) || weight < 0.0)
      fail<InvalidArgumentError>(
          "[fit] class_weight expected finite weights of at least 0, got {} for class {}", weight,
          label);
  }
}

data::Example with_class_weights(const data::Example& example, std::size_t num_inputs,
                                 const std::map<std::int64_t, double>& weights) {
  if (example.size() != num_inputs + 1)
    fail<InvalidArgumentError>(
        "[fit] class_weight expected elements of {} components (inputs, then targets), got {}: "
        "class weights and sample weights do not go together",
        num_inputs + 1, example.size());
  std::vector<float> of_examples;
  for (const std::int64_t label : classes_of(example[num_inputs])) {
    const auto found = weights.find(label);
    of_examples.push_back(found == weights.end() ? 1.0F : static_cast<float>(found->second));
  }
  data::Example weighted = example;
  weighted.push_back(constant(of_examples));
  return weighted;
}

data::Dataset validation_batches(const FitOptions& options, std::int64_t batch_size) {
  const ValidationData& validation = options.validation_data;
  if (options.validation_steps && *options.validation_steps < 1)
    fail<InvalidArgumentError>("[fit] expected validation_steps of at least 1, got {}",
                               *options.validation_steps);
  if (!validation.defined()) {
    if (options.validation_steps || options.validation_batch_size)
      throw InvalidArgumentError(
          "[fit] validation_steps and validation_batch_size are for validation data, and there is "
          "none: pass validation_data or validation_split");
    return {};
  }
  if (!validation.batched())
    return in_batches(validation.data(), options.validation_batch_size.value_or(batch_size), "fit");
  if (options.validation_batch_size)
    throw InvalidArgumentError(
        "[fit] validation_batch_size is for plain tensors; batch() the dataset instead");
  require_end(validation.data(), options.validation_steps.has_value(), "fit: validation_data",
              "validation_steps");
  return validation.data();
}

data::Dataset examples_of(TensorList inputs, TensorList targets, const Tensor& sample_weight) {
  std::vector<Tensor> components(inputs.begin(), inputs.end());
  for (const Tensor& y : targets)
    if (y.defined()) components.push_back(y);
  if (sample_weight.defined()) components.push_back(sample_weight);
  return data::Dataset::from_tensor_slices(data::Example(std::move(components)));
}

ValidationData::ValidationData(ModelTensors inputs, ModelTensors targets,
                               const Tensor& sample_weight)
    : data_(examples_of(inputs.in_order({}, "input"), targets.in_order({}, "output"),
                        sample_weight)) {}

void split_validation(std::vector<Tensor>& inputs, std::vector<Tensor>& targets,
                      FitOptions& options) {
  const double split = std::exchange(options.validation_split, 0.0);
  if (!(split >= 0.0 && split < 1.0))
    fail<InvalidArgumentError>("[fit] expected validation_split in [0, 1), got {}", split);
  if (split == 0.0 || options.validation_data.defined()) return;
  const std::int64_t examples = inputs.front().rank() > 0 ? inputs.front().size_word(0) : 0;
  const auto trained =
      static_cast<std::int64_t>(std::floor(static_cast<double>(examples) * (1.0 - split)));
  if (trained == 0 || trained == examples)
    fail<InvalidArgumentError>(
        "[fit] {} examples are too few for validation_split {}: it leaves {} for training and {} "
        "for validation",
        examples, split, trained, examples - trained);
  const Shape shape = inputs.front().shape();
  // Keeps the part for training, and returns the one for validation.
  const auto take = [&](Tensor& component, const char* name) {
    if (component.rank() < 1 || component.size_word(0) != examples)
      fail<ShapeError>("[fit] x and {} differ in their first axis: shapes {} and {}", name,
                       shape.to_string(), component.shape().to_string());
    const Tensor last = slice_rows(component, trained, examples);
    component = slice_rows(component, 0, trained);
    return last;
  };
  std::vector<Tensor> last_inputs;
  for (Tensor& input : inputs) last_inputs.push_back(take(input, "another input"));
  std::vector<Tensor> last_targets;
  for (Tensor& y : targets) last_targets.push_back(y.defined() ? take(y, "y") : Tensor());
  Tensor last_weights;
  if (options.sample_weight.defined()) last_weights = take(options.sample_weight, "sample_weight");
  options.validation_data = ValidationData(last_inputs, last_targets, last_weights);
}

}  // namespace tandem
