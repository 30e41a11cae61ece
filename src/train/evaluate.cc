// evaluate(), predict(), and single batches.
#include <algorithm>
#include <iterator>
#include <mutex>
#include <span>

#include "core/status.h"
#include "tandem/array.h"
#include "tandem/autodiff.h"
#include "tandem/device.h"
#include "tandem/model.h"
#include "train/batch_trainer.h"
#include "train/fit_data.h"
#include "train/model_impl.h"
#include "train/progress_bar.h"
#include "train/weights_lock.h"

namespace tandem {
namespace {

// Calls `step` for at most options.steps batches, from the source that `batches` opens, up to
// `at_once` of them at a time. Throws InvalidArgumentError if there is no batch.
template <class Batches, class Step>
void for_each_batch(const data::Dataset& data, const EvaluateOptions& options, ProgressBar& bar,
                    const char* what, std::int64_t at_once, const Batches& batches,
                    const Step& step, const ProgressBar::MetricsFunction& logs) {
  if (options.steps && *options.steps < 1)
    fail<InvalidArgumentError>("[{}] expected steps of at least 1, got {}", what, *options.steps);
  std::optional<std::int64_t> total = options.steps;
  if (!total && data.cardinality() >= 0) total = data.cardinality();
  bar.begin({}, total, 0);
  const auto source = batches();
  std::int64_t done = 0;
  while (!options.steps || done < *options.steps) {
    const std::int64_t left = options.steps ? *options.steps - done : at_once;
    const std::vector<GlobalBatch> taken = take_batches(*source, std::min(at_once, left));
    if (taken.empty()) break;
    done += std::ssize(taken);
    step(taken);
    std::int64_t examples = 0;
    for (const GlobalBatch& batch : taken) examples += batch.split().total;
    bar.step(done, examples, logs);
  }
  if (done == 0) fail<InvalidArgumentError>("[{}] the data is empty: it has no batches", what);
}

void require_dataset(const data::Dataset& data, const EvaluateOptions& options, const char* what) {
  if (!data.defined())
    fail<InvalidArgumentError>("[{}] expected a dataset, got an undefined one", what);
  if (options.batch_size)
    fail<InvalidArgumentError>("[{}] batch_size is for plain tensors; batch() the dataset instead",
                               what);
  if (options.sample_weight.defined())
    fail<InvalidArgumentError>(
        "[{}] sample_weight is for evaluate() of plain tensors; a dataset has the weights as the "
        "last component of its elements",
        what);
  require_end(data, options.steps.has_value(), what, "steps");
}

data::Dataset one_batch(TensorList x, TensorList y, const Tensor& sample_weight) {
  std::vector<Tensor> components(x.begin(), x.end());
  components.insert(components.end(), y.begin(), y.end());
  if (sample_weight.defined()) components.push_back(sample_weight);
  return data::Dataset::from_tensors(data::Example(std::move(components)));
}

EvaluateOptions without_batch_size(EvaluateOptions options) {
  options.batch_size.reset();
  return options;
}

}  // namespace

LossAndMetrics Model::evaluate(const data::Dataset& data, const EvaluateOptions& options) const {
  Impl& impl = compiled_impl_of(*this, "evaluate");
  require_dataset(data, options, "evaluate");
  const std::lock_guard lock(impl.programs);
  build_for(impl, data, "evaluate");
  const ReadsWeights reading(impl);
  BatchTrainer trainer(impl, "evaluate", *this);
  ProgressBar bar(impl.is_chief() ? options.verbose : 0);
  for_each_batch(
      data, options, bar, "evaluate", impl.steps_per_execution,
      [&] { return trainer.batches(data); },
      [&](std::span<const GlobalBatch> batches) { trainer.test(batches); },
      [&] { return trainer.statistics().own_logs(); });
  trainer.finish();
  LossAndMetrics result = trainer.statistics().logs();
  bar.end(result);
  return result;
}

LossAndMetrics Model::evaluate(const Tensor& x, const Tensor& y,
                               const EvaluateOptions& options) const {
  return evaluate(ModelTensors(x), ModelTensors(y), options);
}

LossAndMetrics Model::evaluate(ModelTensors inputs, ModelTensors targets,
                               const EvaluateOptions& options) const {
  Impl& impl = compiled_impl_of(*this, "evaluate");
  impl.expect_inputs(inputs.size());
  EvaluateOptions rest = without_batch_size(options);
  rest.sample_weight = {};  // part of the examples
  return evaluate(in_batches(examples_of(impl.inputs_of(inputs), impl.targets_of(targets),
                                         options.sample_weight),
                             options.batch_size.value_or(kDefaultBatchSize), "evaluate"),
                  rest);
}

Predictions Model::predict(const data::Dataset& data, const EvaluateOptions& options) const {
  Impl& impl = impl_of(*this, "predict");
  require_dataset(data, options, "predict");
  std::unique_lock lock(impl.programs);
  build_for(impl, data, "predict");
  if (!impl.compiled) lock.unlock();  // there is no program
  const ReadsWeights reading(impl);
  BatchTrainer trainer(impl, "predict", *this);
  ProgressBar bar(impl.is_chief() ? options.verbose : 0);
  std::vector<std::vector<Tensor>> batches(impl.num_outputs());  // by output
  for_each_batch(
      data, options, bar, "predict", impl.steps_per_execution,
      [&] { return trainer.batches_to_predict(data); },
      [&](std::span<const GlobalBatch> taken) {
        trainer.predict(taken, [&](std::vector<Tensor> outputs) {
          for (std::size_t i = 0; i < outputs.size(); ++i)
            batches[i].push_back(std::move(outputs[i]));
        });
      },
      [] { return callbacks::Logs(); });
  trainer.finish();
  bar.end({});
  NoGradScope no_grad;
  const DeviceScope host("/cpu:0");
  std::vector<Tensor> outputs;
  for (const std::vector<Tensor>& each : batches)
    outputs.push_back(each.size() == 1 ? each.front() : concat(each, 0));
  return Predictions(std::move(outputs));
}

Predictions Model::predict(const Tensor& x, const EvaluateOptions& options) const {
  return predict(ModelTensors(x), options);
}

Predictions Model::predict(ModelTensors inputs, const EvaluateOptions& options) const {
  Impl& impl = impl_of(*this, "predict");
  impl.expect_inputs(inputs.size());
  const data::Example components(impl.inputs_of(inputs));
  return predict(in_batches(data::Dataset::from_tensor_slices(components),
                            options.batch_size.value_or(kDefaultBatchSize), "predict"),
                 without_batch_size(options));
}

LossAndMetrics Model::train_on_batch(ModelTensors x, ModelTensors y, const Tensor& sample_weight) {
  Impl& impl = compiled_impl_of(*this, "train_on_batch");
  const data::Dataset data = one_batch(impl.inputs_of(x), impl.targets_of(y), sample_weight);
  build_for(impl, data, "train_on_batch");
  {
    const Scoped creator(context.creator, impl.creator);
    impl.optimizer.build(impl.layer.trainable_variables());
  }
  BatchTrainer trainer(impl, "train_on_batch", *this);
  const auto batches = trainer.batches(data);
  trainer.train(take_batches(*batches, 1));
  trainer.finish();
  return trainer.statistics().logs();
}

LossAndMetrics Model::test_on_batch(ModelTensors x, ModelTensors y,
                                    const Tensor& sample_weight) const {
  const Impl& impl = compiled_impl_of(*this, "test_on_batch");
  return evaluate(one_batch(impl.inputs_of(x), impl.targets_of(y), sample_weight));
}

Predictions Model::predict_on_batch(ModelTensors x) const {
  return predict(one_batch(impl_of(*this, "predict_on_batch").inputs_of(x), {}, {}));
}

LossAndMetrics::operator double() const {
  if (size() != 1)
    fail<InvalidArgumentError>(
        "[LossAndMetrics] expected a loss without metrics, got {} values: write at(\"loss\")",
        size());
  return begin()->second;
}

double& LossAndMetrics::operator[](const std::string& name) {
  return static_cast<std::map<std::string, double>&>(*this)[name];
}
double& LossAndMetrics::operator[](const char* name) { return (*this)[std::string(name)]; }

double LossAndMetrics::part(std::size_t index) const {
  if (size() != 2 || !contains("loss"))
    fail<InvalidArgumentError>(
        "[LossAndMetrics] expected a loss and one metric for two names, got {} values: write "
        "at(\"loss\")",
        size());
  const bool loss_first = begin()->first == "loss";
  return (loss_first == (index == 0) ? begin() : std::next(begin()))->second;
}

}  // namespace tandem
