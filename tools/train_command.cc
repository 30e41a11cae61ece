#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>

#include "commands.h"
#include "core/json.h"
#include "files.h"
#include "images.h"
#include "models.h"
#include "tandem/callbacks.h"
#include "tandem/debugging.h"
#include "tandem/profiler.h"
#include "tandem/random.h"
#include "workload.h"

namespace tandem::tools {
namespace {

struct TrainOptions {
  Workload workload;
  std::optional<std::int64_t> limit, checkpoint_steps;
  std::optional<double> learning_rate;
  std::int64_t epochs = 2;
  std::uint64_t seed = 1;
  std::string checkpoint, report, trace;
  bool resume = false, check_numerics = false, profile = false;
};

void check(const TrainOptions& options) {
  const auto reject = [](const std::string& message) {
    throw InvalidArgumentError("[train] " + message);
  };
  if (options.learning_rate && !(*options.learning_rate >= 0.0))
    reject(fmt::format("expected --lr of at least 0, got {}", *options.learning_rate));
  if (options.checkpoint.empty() && (options.resume || options.checkpoint_steps))
    reject("--resume and --checkpoint-steps require --checkpoint FILE");
  check(options.workload);
  // Checked before training, so that no result is lost afterwards.
  for (const auto& [option, file] :
       {std::pair("--checkpoint", options.checkpoint), std::pair("--report", options.report),
        std::pair("--trace", options.trace)}) {
    if (std::filesystem::is_directory(file))
      reject(fmt::format("expected a file for {}, '{}' is a directory", option, file));
    if (const auto directory = std::filesystem::path(file).parent_path();
        !directory.empty() && !std::filesystem::is_directory(directory))
      throw NotFoundError(fmt::format("[train] the directory '{}' of {} '{}' does not exist",
                                      directory.string(), option, file));
  }
}

// The options that must be equal when training resumes from a checkpoint.
std::map<std::string, std::string> config_of(const TrainOptions& options, std::int64_t batch,
                                             const Recipe& recipe) {
  std::map<std::string, std::string> config = {
      {"--model", options.workload.model},
      {"--batch", std::to_string(batch)},
      {"--seed", std::to_string(options.seed)},
      {"--limit", options.limit ? std::to_string(*options.limit) : "all"},
      {"--data", options.workload.data.substr(0, options.workload.data.find(':'))},
      {"--optimizer",
       options.workload.optimizer.empty() ? recipe.optimizer : options.workload.optimizer},
      {"--dtype", options.workload.dtype},
      {"--lr", options.learning_rate ? fmt::format("{}", *options.learning_rate) : "default"}};
  if (recipe.decay) config["--epochs"] = std::to_string(options.epochs);  // the schedule's length
  return config;
}

std::vector<callbacks::Callback> callbacks_of(const TrainOptions& options, std::int64_t batch,
                                              const Recipe& recipe) {
  if (options.checkpoint.empty()) return {};
  return {callbacks::TrainingCheckpoint(options.checkpoint,
                                        {.save_freq = options.checkpoint_steps,
                                         .resume = options.resume,
                                         .config = config_of(options, batch, recipe)})};
}

// Counts the steps and the time of this run. The history of a resumed run includes earlier ones.
class Stopwatch final : public callbacks::CallbackBase {
 public:
  Stopwatch(std::int64_t batch, std::int64_t examples) : batch_(batch), examples_(examples) {}

  void on_train_begin(Model&) override { start_ = Clock::now(); }
  void on_epoch_begin(Model&, std::int64_t epoch) override { epoch_ = epoch; }
  void on_train_batch_end(Model&, std::int64_t index, const callbacks::Logs&) override {
    steps_ = index + 1;
    trained_ += std::min(batch_, examples_ - index * batch_);
  }
  void on_train_end(Model&) override {
    seconds_ = std::chrono::duration<double>(Clock::now() - start_).count();
  }

  std::int64_t epoch() const { return epoch_ + 1; }  // counted from 1, for messages
  std::int64_t steps() const { return steps_; }      // of the present epoch
  double seconds() const { return seconds_; }
  double examples_per_second() const {
    return trained_ > 0 ? static_cast<double>(trained_) / seconds_ : 0.0;
  }

 private:
  using Clock = std::chrono::steady_clock;
  std::int64_t batch_, examples_;
  std::int64_t epoch_ = 0, steps_ = 0, trained_ = 0;
  Clock::time_point start_;
  double seconds_ = 0.0;
};

// Writes the profile of a run, even if the run ends with an error.
class Profile {
 public:
  Profile(const std::string& trace, bool print) : print_(print) {
    if (!trace.empty() || print) profiler::start({.file = trace});
  }
  ~Profile() {
    try {
      end();
    } catch (const Error&) {  // the run's own error is the one to report
    }
  }
  Profile(const Profile&) = delete;
  Profile& operator=(const Profile&) = delete;

  void end() {
    if (!profiler::running()) return;
    const profiler::Summary summary = profiler::stop();
    if (print_) table_ = summary.to_string();
  }
  const std::string& table() const { return table_; }

 private:
  bool print_;
  std::string table_;
};

std::vector<double> epochs_of(const History& history, const std::string& name) {
  const auto found = history.history.find(name);
  return found == history.history.end() ? std::vector<double>() : found->second;
}

// The report of a training run, complete or interrupted.
Json report_of(const History& history, const Stopwatch& stopwatch, const Model& model,
               const distribute::Strategy& strategy) {
  return {{"train_loss", epochs_of(history, "loss")},
          {"train_accuracy", epochs_of(history, "accuracy")},
          {"samples_per_second", stopwatch.examples_per_second()},
          {"seconds", stopwatch.seconds()},
          {"parameters", model.count_params()},
          {"devices", strategy.devices()},
          {"version", TANDEM_VERSION}};
}

void write_report(const std::string& path, const Json& report) {
  if (path.empty()) return;
  replace_file(path, report.dump({.indent = 2}) + "\n",
               "[train] cannot write the report '" + path + "'");
}

std::string signal_name(int signal) {
  const char* name = sigabbrev_np(signal);
  return name ? fmt::format("SIG{}", name) : fmt::format("signal {}", signal);
}

void report_interruption(const TrainOptions& options, int signal, const Stopwatch& stopwatch,
                         Json& report) {
  const std::string how =
      options.checkpoint.empty()
          ? std::string("its state was not saved; use --checkpoint FILE to save it")
          : fmt::format("to resume, run the same command with --checkpoint {} --resume",
                        options.checkpoint);
  std::cerr << fmt::format("tandem: [train] {} stopped training after step {} of epoch {}; {}\n",
                           signal_name(signal), stopwatch.steps(), stopwatch.epoch(), how);
  report["interrupted"] = {
      {"signal", signal_name(signal)}, {"epoch", stopwatch.epoch()}, {"step", stopwatch.steps()}};
}

Model make_compiled_model(const TrainOptions& options, const Recipe& recipe,
                          const datasets::LabelledImages& images, std::int64_t steps) {
  Model model =
      make_model(options.workload.model, images.images.shape().without_leading(1), images.classes);
  model.compile({.optimizer = make_optimizer(recipe, options.workload.optimizer,
                                             options.learning_rate, steps),
                 .loss = losses::SparseCategoricalCrossentropy({.from_logits = true}),
                 .metrics = {"accuracy"},
                 .dtype = options.workload.dtype});
  return model;
}

// Returns the exit code.
int train(const TrainOptions& options) {
  check(options);
  if (options.check_numerics) debugging::enable_check_numerics();
  const Workload& workload = options.workload;
  const Recipe recipe = recipe_for(workload.model);
  const std::int64_t batch = workload.batch.value_or(recipe.batch);
  const distribute::Strategy strategy = make_strategy(workload.placement);
  const bool chief = strategy.is_chief();
  Profile profile(chief ? options.trace : "", chief && options.profile);
  random::set_seed(options.seed);
  const datasets::TrainTest images = load_images(workload.data, options.limit, options.seed);
  const std::int64_t steps_per_epoch = (images.train.size() + batch - 1) / batch;

  Model model;
  {
    const auto scope = strategy.scope();
    model = make_compiled_model(options, recipe, images.train, steps_per_epoch * options.epochs);
  }

  auto callbacks = callbacks_of(options, batch, recipe);
  const auto stopwatch = std::make_shared<Stopwatch>(batch, images.train.size());
  callbacks.push_back(callbacks::Callback(stopwatch));
  int interrupted_by = 0;
  callbacks.push_back(
      callbacks::StopOnSignal({.on_stop = [&](Model&, int signal) { interrupted_by = signal; }}));
  const History history =
      model.fit(training_batches(images.train,
                                 {.batch = batch, .seed = options.seed, .augment = recipe.augment}),
                {.epochs = options.epochs, .callbacks = callbacks});
  auto report = report_of(history, *stopwatch, model, strategy);
  if (interrupted_by != 0) {
    if (chief) {
      report_interruption(options, interrupted_by, *stopwatch, report);
      profile.end();
      std::cout << profile.table();
      write_report(options.report, report);
    }
    return 128 + interrupted_by;
  }
  const auto test = model.evaluate(test_batches(images.test, std::max<std::int64_t>(batch, 256)));

  profile.end();
  if (!chief) return 0;
  std::cout << fmt::format("test_loss: {:.4f} - test_accuracy: {:.4f} - {:.0f} samples/s\n",
                           test.at("loss"), test.at("accuracy"), stopwatch->examples_per_second())
            << profile.table();
  report["test_loss"] = test.at("loss");
  report["test_accuracy"] = test.at("accuracy");
  write_report(options.report, report);
  return 0;
}

}  // namespace

void add_train_command(Command program) {
  const auto options = std::make_shared<TrainOptions>();
  Command command = program.command("train", "Train a model and evaluate it");
  add_workload_options(command, options->workload,
                       "Dataset: synthetic, mnist:DIRECTORY or cifar10:DIRECTORY");
  command.option("--epochs", options->epochs, "Number of passes over the training data")
      .at_least(0);
  command.option("--lr", options->learning_rate,
                 "Learning rate (default: depends on the model and the optimizer)");
  command
      .option("--seed", options->seed,
              "Random seed for initialization, shuffling, dropout and synthetic data")
      .at_least(0);
  command.option("--limit", options->limit, "Train on the first N images only").at_least(1);
  command.option("--checkpoint", options->checkpoint, "Save the state of training to this file");
  command
      .option("--checkpoint-steps", options->checkpoint_steps,
              "Save a checkpoint every N steps, in addition to the end of each epoch")
      .at_least(1);
  command.flag("--resume", options->resume, "Resume training from the checkpoint");
  command.option("--report", options->report,
                 "Write losses, metrics and timings to this file as JSON");
  command.option("--trace", options->trace,
                 "Write a profile of the whole run to this file as a Chrome trace");
  command.flag("--check-numerics", options->check_numerics,
               "Stop with an error at the first operation that produces NaN or infinity");
  command.flag("--profile", options->profile, "Print the total time of each operation per device");
  command.runs([options] { return train(*options); });
}

}  // namespace tandem::tools
