// fit(): the training loop.
#include <algorithm>
#include <iterator>
#include <limits>
#include <set>
#include <span>

#include "core/log.h"
#include "core/profile.h"
#include "core/status.h"
#include "tandem/model.h"
#include "train/batch_trainer.h"
#include "train/fit_data.h"
#include "train/model_impl.h"
#include "train/own_model.h"
#include "train/progress_bar.h"
#include "train/training_state.h"

namespace tandem {
namespace {

using callbacks::Callback;
using callbacks::Logs;

constexpr std::int64_t kAll = std::numeric_limits<std::int64_t>::max();
constexpr const char* kNoData = "[fit] expected a dataset, got an undefined one";

class FitLoop {
 public:
  // `validation`: undefined if there is none.
  FitLoop(Model& model, const data::Dataset& data, const data::Dataset& validation,
          const FitOptions& options)
      : model_(model),
        impl_(compiled_impl_of(model, "fit")),
        data_(data),
        validation_(validation),
        options_(options),
        trainer_(prepare(), "fit", model),
        progress_{.epoch = options.initial_epoch,
                  .data = {.pass = std::max(impl_.passes, options.initial_epoch)},
                  .statistics = trainer_.statistics(),
                  .finish_steps = [this] { trainer_.finish(); }},
        bar_(impl_.is_chief() ? options.verbose : 0) {
    for (const Callback& callback : options.callbacks)
      (callback->runs_last() ? last_ : progress_.callbacks).push_back(callback);
    std::set<std::string> names;
    for (const char* prefix : {"", "val_"}) {
      if (has_own_class(model_)) continue;  // its steps choose them
      if (*prefix != '\0' && !validation_.defined()) continue;
      names.insert(fmt::format("{}loss", prefix));
      for (const std::string& name : impl_.reported.names) names.insert(prefix + name);
    }
    progress_.log_names.assign(names.begin(), names.end());
    impl_.progress = &progress_;
    impl_.stop = false;
  }
  ~FitLoop() {
    impl_.progress = nullptr;
    impl_.passes = progress_.data.pass + (progress_.data.batch > 0 ? 1 : 0);
  }

  History run() {
    try {
      check_workers_agree();
      progress_.steps_per_epoch = steps();
      for_each([&](auto& callback) { callback.on_train_begin(model_); });
      while (progress_.epoch < options_.epochs && !impl_.stop) run_epoch();
      for_each([&](auto& callback) { callback.on_train_end(model_); });
    } catch (const std::exception& error) {
      impl_.runner->abort(error.what());
      throw;
    }
    return std::move(progress_.history);
  }

 private:
  // Builds the model and the optimizer's variables under the strategy.
  Model::Impl& prepare() const {
    if (!data_.defined()) throw InvalidArgumentError(kNoData);
    if (options_.steps_per_epoch && *options_.steps_per_epoch < 1)
      fail<InvalidArgumentError>("[fit] expected steps_per_epoch of at least 1, got {}",
                                 *options_.steps_per_epoch);
    if (options_.epochs < 0 || options_.initial_epoch < 0)
      fail<InvalidArgumentError>(
          "[fit] expected epochs and initial_epoch of at least 0, got {} and {}", options_.epochs,
          options_.initial_epoch);
    if (options_.validation_freq < 1)
      fail<InvalidArgumentError>("[fit] expected validation_freq of at least 1, got {}",
                                 options_.validation_freq);
    if (options_.verbose < 0 || options_.verbose > 2)
      fail<InvalidArgumentError>("[fit] expected verbose of 0, 1 or 2, got {}", options_.verbose);
    require_end(data_, options_.steps_per_epoch.has_value(), "fit", "steps_per_epoch");
    build_for(impl_, data_, "fit");
    const Scoped creator(context.creator, impl_.creator);
    impl_.optimizer.build(impl_.layer.trainable_variables());
    return impl_;
  }

  template <class Call>
  void for_each(const Call& call) {
    for (const Callback& callback : progress_.callbacks) call(*callback);
    for (const Callback& callback : last_) call(*callback);
  }

  std::optional<std::int64_t> steps() const {
    if (options_.steps_per_epoch) return options_.steps_per_epoch;
    if (known_steps_) return known_steps_;
    const std::int64_t cardinality = data_.cardinality();
    return cardinality >= 0 ? std::optional(cardinality) : std::nullopt;
  }

  void run_epoch() {
    const std::int64_t epoch = progress_.epoch;
    if (progress_.step == 0) progress_.statistics.clear();
    bar_.begin(fmt::format("Epoch {}/{}", epoch + 1, options_.epochs), steps(), progress_.step);
    for_each([&](auto& callback) { callback.on_epoch_begin(model_, epoch); });
    const bool whole = run_steps();
    if (progress_.step == 0)
      throw InvalidArgumentError("[fit] the data is empty: it has no batches");
    trainer_.finish();
    Logs logs = progress_.statistics.logs();
    if (validation_.defined() && (epoch + 1) % options_.validation_freq == 0) validate(logs);
    for_each([&](auto& callback) { callback.on_epoch_logs(model_, epoch, logs); });
    bar_.end(logs);
    progress_.history.epoch.push_back(epoch);
    for (const auto& [name, value] : logs) progress_.history.history[name].push_back(value);
    // A checkpoint from here on resumes with the next epoch; after an epoch that was
    // stopped, with its next step.
    if (whole) {
      known_steps_ = progress_.step;
      progress_.epoch = epoch + 1;
      progress_.step = 0;
      progress_.statistics.clear();
    }
    for_each([&](auto& callback) { callback.on_epoch_end(model_, epoch, logs); });
  }

  // Returns whether the epoch was complete.
  bool run_steps() {
    bool more = true;
    while (more && progress_.step < options_.steps_per_epoch.value_or(kAll)) {
      const DataPosition before = progress_.data;
      const std::vector<GlobalBatch> batches = next_batches(more);
      if (batches.empty()) break;
      if (impl_.stop) {
        progress_.data = before;
        return false;
      }
      begin_batch();
      train(batches);
      std::int64_t examples = 0;
      for (const GlobalBatch& batch : batches) examples += batch.split().total;
      progress_.step += static_cast<std::int64_t>(batches.size());
      bar_.step(progress_.step, examples, [&] { return progress_.statistics.own_logs(); });
      end_batch();
    }
    if (more) return true;
    if (options_.steps_per_epoch)
      logging::warn("[fit] the data ended after {} of {} steps", progress_.step,
                    *options_.steps_per_epoch);
    else if (progress_.data.batch > 0)
      progress_.data = {.pass = progress_.data.pass + 1};
    return true;
  }

  // The batches of the next execution. Sets `more` to false if the data of the epoch has ended.
  std::vector<GlobalBatch> next_batches(bool& more) {
    const std::int64_t left = options_.steps_per_epoch.value_or(kAll) - progress_.step;
    const auto steps = static_cast<std::size_t>(std::min(impl_.steps_per_execution, left));
    std::vector<GlobalBatch> batches;
    while (batches.size() < steps) {
      std::optional<GlobalBatch> batch = next_batch();
      more = batch.has_value();
      if (!more) break;
      ++progress_.data.batch;
      batches.push_back(std::move(*batch));
    }
    return batches;
  }

  // The next batch of the epoch; none if the data has ended. An epoch with a fixed number of steps
  // continues with the next pass over the data.
  std::optional<GlobalBatch> next_batch() {
    for (;;) {
      DataPosition& at = progress_.data;
      if (!batches_)
        batches_ = trainer_.batches(
            data_, {.epoch = static_cast<std::uint64_t>(at.pass), .skip = at.batch});
      std::optional<GlobalBatch> batch = next_of(*batches_);
      if (batch) return batch;
      batches_.reset();
      if (at.batch == 0 || !options_.steps_per_epoch) return std::nullopt;
      at = {.pass = at.pass + 1};
    }
  }

  static std::optional<GlobalBatch> next_of(BatchSource& batches) {
    const profile::Span span(
        [] { return profile::Event{.name = "wait for data", .lane = profile::Lane::kData}; });
    return batches.next();
  }

  void train(std::span<const GlobalBatch> batches) {
    const profile::Span span([&] {
      return profile::Event{.name = "train step",
                            .lane = profile::Lane::kSteps,
                            .node = fmt::format("step {}", progress_.step)};
    });
    trainer_.train(batches);
  }

  // Checks that all workers run the same steps. If a callback of one worker asks for batch
  // metrics, all compute them.
  void check_workers_agree() {
    for_each([&](auto& callback) { batch_logs_ = batch_logs_ || callback.needs_batch_logs(); });
    const std::shared_ptr<WorkerCollectives> workers = impl_.runner->workers();
    if (!workers) return;
    const std::string mine = fmt::format(
        "{} to {} epochs, {} steps each, {} validation data ({} steps, every {} epochs)",
        options_.initial_epoch, options_.epochs, number_or_all(options_.steps_per_epoch),
        validation_.defined() ? "with" : "without", number_or_all(options_.validation_steps),
        options_.validation_freq);
    const std::vector<std::string> all =
        workers->gather_bytes((batch_logs_ ? "1" : "0") + mine, "start of fit");
    for (std::size_t worker = 0; worker < all.size(); ++worker) {
      batch_logs_ = batch_logs_ || all[worker].front() == '1';
      if (all[worker].substr(1) != all[0].substr(1))
        fail<InvalidArgumentError>(
            "[fit] expected the same arguments on every worker; worker 0: {}; worker {}: {}",
            all[0].substr(1), worker, all[worker].substr(1));
    }
  }

  static std::string number_or_all(const std::optional<std::int64_t>& number) {
    return number ? std::to_string(*number) : "all";
  }

  void begin_batch() {
    for_each([&](auto& callback) { callback.on_train_batch_begin(model_, progress_.step); });
  }

  void end_batch() {
    if (batch_logs_) trainer_.finish();
    const Logs logs = batch_logs_ ? progress_.statistics.logs() : Logs();
    for_each(
        [&](auto& callback) { callback.on_train_batch_end(model_, progress_.step - 1, logs); });
  }

  void validate(Logs& logs) {
    BatchTrainer tester(impl_, "fit", model_);
    const auto batches = tester.batches(validation_);
    std::int64_t left = options_.validation_steps.value_or(kAll);
    for (std::vector<GlobalBatch> taken; left > 0; left -= std::ssize(taken)) {
      taken = take_batches(*batches, std::min(impl_.steps_per_execution, left));
      if (taken.empty()) break;
      tester.test(taken);
    }
    tester.finish();
    if (tester.statistics().empty())
      throw InvalidArgumentError("[fit] the validation data is empty: it has no batches");
    logs.merge(tester.statistics().logs("val_"));
  }

  Model& model_;
  Model::Impl& impl_;
  const data::Dataset& data_;
  const data::Dataset& validation_;
  const FitOptions& options_;
  BatchTrainer trainer_;
  TrainingProgress progress_;
  std::unique_ptr<BatchSource> batches_;  // starts at progress_.data; null until it is opened
  std::vector<Callback> last_;
  ProgressBar bar_;
  std::optional<std::int64_t> known_steps_;
  bool batch_logs_ = false;  // whether a callback uses them
};

History fit_on(Model& model, const data::Dataset& data, FitOptions options,
               std::int64_t batch_size) {
  const data::Dataset validation = validation_batches(options, batch_size);
  if (options.class_weight.empty()) return FitLoop(model, data, validation, options).run();
  if (!data.defined()) throw InvalidArgumentError(kNoData);
  check_class_weights(options.class_weight);
  const Model::Impl& impl = compiled_impl_of(model, "fit");
  const std::size_t num_inputs = impl.num_inputs;
  if (impl.num_outputs() > 1)
    fail<InvalidArgumentError>(
        "[fit] `class_weight` is only supported for Models with a single output: expected none for "
        "{} outputs; use sample weights",
        impl.num_outputs());
  const data::Dataset weighted =
      data.map([num_inputs, weights = options.class_weight](const data::Example& batch) {
        return with_class_weights(batch, num_inputs, weights);
      });
  return FitLoop(model, weighted, validation, options).run();
}

}  // namespace

History Model::fit(const data::Dataset& data, FitOptions options) {
  if (options.batch_size)
    throw InvalidArgumentError(
        "[fit] batch_size is for plain tensors; batch() the dataset instead");
  if (options.validation_split != 0.0)
    throw InvalidArgumentError(
        "[fit] validation_split is for plain tensors; for a dataset pass validation_data, such as "
        "data.take(n), and train on data.skip(n)");
  if (options.sample_weight.defined())
    throw InvalidArgumentError(
        "[fit] sample_weight is for plain tensors; a dataset has the weights as the last component "
        "of its elements");
  return fit_on(*this, data, std::move(options), kDefaultBatchSize);
}

History Model::fit(const Tensor& x, const Tensor& y, FitOptions options) {
  return fit(ModelTensors(x), ModelTensors(y), std::move(options));
}

History Model::fit(ModelTensors inputs, ModelTensors targets, FitOptions options) {
  const std::int64_t batch_size = options.batch_size.value_or(kDefaultBatchSize);
  compiled_impl_of(*this, "fit").expect_inputs(inputs.size());
  std::vector<Tensor> trained = impl_->inputs_of(inputs), wanted = impl_->targets_of(targets);
  split_validation(trained, wanted, options);
  const std::int64_t examples = trained.front().size_word(0);
  data::Dataset data = examples_of(trained, wanted, options.sample_weight);
  // Batches of examples in order are views, for which no thread is worth its hand-overs.
  const bool copies = options.shuffle && examples > batch_size;
  if (options.shuffle) {
    std::optional<std::uint64_t> seed;
    if (options.shuffle_seed) seed = static_cast<std::uint64_t>(*options.shuffle_seed);
    data = data.shuffle(std::max<std::int64_t>(examples, 1), {.seed = seed});
  }
  data = in_batches(data, batch_size, "fit");
  return fit_on(*this, copies ? data.prefetch(2) : data, std::move(options), batch_size);
}

}  // namespace tandem
