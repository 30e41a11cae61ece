// evaluate() and predict().
#include "core/status.h"
#include "tandem/array.h"
#include "tandem/autodiff.h"
#include "tandem/device.h"
#include "tandem/model.h"
#include "train/batch_trainer.h"
#include "train/fit_data.h"
#include "train/model_impl.h"
#include "train/progress_bar.h"

namespace tandem {
namespace {

// Calls `step` for at most options.steps batches, from the source that `batches` opens. Throws
// InvalidArgumentError if there is no batch.
template <class Batches, class Step>
void for_each_batch(const data::Dataset& data, const EvaluateOptions& options, ProgressBar& bar,
                    const char* what, const Batches& batches, const Step& step) {
  if (options.steps && *options.steps < 1)
    fail<InvalidArgumentError>("[{}] expected steps of at least 1, got {}", what, *options.steps);
  std::optional<std::int64_t> total = options.steps;
  if (!total && data.cardinality() >= 0) total = data.cardinality();
  bar.begin({}, total, 0);
  const auto source = batches();
  std::int64_t done = 0;
  for (std::optional<GlobalBatch> batch;
       (!options.steps || done < *options.steps) && (batch = source->next()); ++done)
    step(*batch, done + 1);
  if (done == 0) fail<InvalidArgumentError>("[{}] the data is empty: it has no batches", what);
}

void require_dataset(const data::Dataset& data, const EvaluateOptions& options, const char* what) {
  if (!data.defined())
    fail<InvalidArgumentError>("[{}] expected a dataset, got an undefined one", what);
  if (options.batch_size)
    fail<InvalidArgumentError>("[{}] batch_size is for plain tensors; batch() the dataset instead",
                               what);
  require_end(data, options.steps.has_value(), what, "steps");
}

EvaluateOptions without_batch_size(EvaluateOptions options) {
  options.batch_size.reset();
  return options;
}

}  // namespace

std::map<std::string, double> Model::evaluate(const data::Dataset& data,
                                              const EvaluateOptions& options) {
  Impl& impl = compiled_impl_of(*this, "evaluate");
  require_dataset(data, options, "evaluate");
  build_for(impl, data, "evaluate");
  BatchTrainer trainer(impl, "evaluate");
  ProgressBar bar(impl.is_chief() ? options.verbose : 0);
  for_each_batch(
      data, options, bar, "evaluate", [&] { return trainer.batches(data); },
      [&](const GlobalBatch& batch, std::int64_t done) {
        trainer.test(batch);
        bar.step(done, batch.split().total, [&] { return trainer.statistics().own_logs(); });
      });
  trainer.finish();
  std::map<std::string, double> result = trainer.statistics().logs();
  bar.end(result);
  return result;
}

std::map<std::string, double> Model::evaluate(const Tensor& x, const Tensor& y,
                                              const EvaluateOptions& options) {
  return evaluate(in_batches(data::Dataset::from_tensor_slices({x, y}),
                             options.batch_size.value_or(kDefaultBatchSize), "evaluate"),
                  without_batch_size(options));
}

Tensor Model::predict(const data::Dataset& data, const EvaluateOptions& options) {
  Impl& impl = impl_of(*this, "predict");
  require_dataset(data, options, "predict");
  build_for(impl, data, "predict");
  BatchTrainer trainer(impl, "predict");
  ProgressBar bar(impl.is_chief() ? options.verbose : 0);
  std::vector<Tensor> outputs;
  for_each_batch(
      data, options, bar, "predict", [&] { return trainer.batches_to_predict(data); },
      [&](const GlobalBatch& batch, std::int64_t done) {
        trainer.predict(batch, [&](Tensor output) { outputs.push_back(std::move(output)); });
        bar.step(done, batch.split().total, [] { return callbacks::Logs(); });
      });
  trainer.finish();
  bar.end({});
  NoGradScope no_grad;
  const DeviceScope host("/cpu:0");
  return outputs.size() == 1 ? outputs.front() : concat(outputs, 0);
}

Tensor Model::predict(const Tensor& x, const EvaluateOptions& options) {
  return predict(in_batches(data::Dataset::from_tensor_slices({x}),
                            options.batch_size.value_or(kDefaultBatchSize), "predict"),
                 without_batch_size(options));
}

}  // namespace tandem
