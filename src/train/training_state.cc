#include "train/training_state.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <set>
#include <sstream>

#include "core/status.h"
#include "nn/optimizer_impl.h"
#include "tandem/checkpoint.h"
#include "tandem/creation.h"
#include "tandem/device.h"
#include "tandem/random.h"
#include "train/checkpoint/reader.h"
#include "train/model_impl.h"

namespace tandem {
namespace {

using Named = std::map<std::string, Tensor>;

constexpr const char* kTrainingState = "tandem.training_state";  // metadata: the version
constexpr const char* kVersion = "2";
// Prefixes of the tensors' names.
constexpr const char* kModel = "model/";
constexpr const char* kCopies = "replicas/";
constexpr const char* kOptimizer = "optimizer/";
constexpr const char* kStatistics = "statistics/";
constexpr const char* kHistory = "history/";
constexpr const char* kHistoryEpochs = "history_epochs";
constexpr const char* kCallbacks = "callbacks/";
constexpr const char* kConfig = "config.";
constexpr const char* kLearningRate = "learning_rate";
constexpr const char* kReplacedSchedule = "learning_rate_in_place_of_schedule";
constexpr const char* kLayout = "tensors";

void put_all(Named& to, const std::string& prefix, const Named& tensors) {
  for (const auto& [name, tensor] : tensors)
    if (!to.emplace(prefix + name, tensor).second)
      fail<InvalidArgumentError>(
          "[save] two variables are named '{}'; give their layers unique names", name);
}

Named group(const Named& tensors, const std::string& prefix) {
  Named result;
  for (auto it = tensors.lower_bound(prefix); it != tensors.end() && it->first.starts_with(prefix);
       ++it)
    result.emplace(it->first.substr(prefix.size()), it->second);
  return result;
}

Named values_of(const std::vector<Variable>& variables) {
  Named values;
  for (const Variable& variable : variables)
    put_all(values, "", {{variable.name(), variable.value()}});
  return values;
}

// Whether the replicas' copies of the variable may differ.
bool copies_differ(const Variable& variable) {
  return variable.impl().distributed() &&
         variable.synchronization() == VariableSynchronization::kOnRead;
}

std::string copy_name(std::size_t replica, const Variable& variable) {
  return fmt::format("{}{}/{}", kCopies, replica, variable.name());
}

// The global number of this process's first replica.
std::size_t first_replica(const Variable& variable) {
  const auto& workers = variable.impl().workers();
  return workers ? static_cast<std::size_t>(workers->first_replica()) : 0;
}

void save_copies(Named& tensors, const std::vector<Variable>& variables) {
  for (const Variable& variable : variables) {
    if (!copies_differ(variable)) continue;
    VariableStorage& storage = variable.impl().storage();
    for (std::size_t place = 0; place < storage.num_places(); ++place)
      tensors[copy_name(first_replica(variable) + place, variable)] = storage.value(place);
  }
}

void restore_copies(const Named& tensors, const std::vector<Variable>& variables) {
  for (const Variable& variable : variables) {
    if (!copies_differ(variable)) continue;
    VariableStorage& storage = variable.impl().storage();
    // The file is of another number of replicas: keep the aggregate, which the variable
    // already has.
    if (tensors.contains(copy_name(variable.impl().num_copies(), variable))) continue;
    for (std::size_t place = 0; place < storage.num_places(); ++place) {
      const auto found = tensors.find(copy_name(first_replica(variable) + place, variable));
      if (found == tensors.end()) break;
      storage.store(place, found->second);
    }
  }
}

template <class T>
T parse_number(const TensorFile& file, const std::string& key, const std::string& what) {
  const auto found = file.metadata.find(key);
  T number{};
  const std::string_view text =
      found == file.metadata.end() ? std::string_view() : std::string_view(found->second);
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  // Counts and learning rates are never negative.
  if (error != std::errc() || stop != text.data() + text.size() || !(number >= T{}))
    fail<DataLossError>("[load] {} is no training checkpoint: it has no number '{}'", what, key);
  return number;
}

// One line per tensor: name, dtype, shape.
std::set<std::string> layout_of(const Named& tensors) {
  std::set<std::string> lines;
  for (const auto& [name, tensor] : tensors)
    lines.insert(
        fmt::format("{} {} {}\n", name, name_of(tensor.dtype()), tensor.shape().to_string()));
  return lines;
}

std::string join(const std::set<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line;
  return text;
}

// Checks that no tensor is missing or added, or has another dtype or shape.
void check_layout(const TensorFile& file, const std::string& what) {
  const auto found = file.metadata.find(kLayout);
  const std::string saved = found == file.metadata.end() ? std::string() : found->second;
  const std::string present = join(layout_of(file.tensors));
  if (saved == present) return;
  const auto at = std::mismatch(saved.begin(), saved.end(), present.begin(), present.end()).first;
  const auto start = static_cast<std::size_t>(at - saved.begin());
  const auto line_at = [start](const std::string& lines) {
    const std::size_t before = start == 0 ? std::string::npos : lines.rfind('\n', start - 1);
    const std::size_t first = before == std::string::npos ? 0 : before + 1;
    return first < lines.size()
               ? fmt::format("'{}'", lines.substr(first, lines.find('\n', first) - first))
               : std::string("nothing more");
  };
  fail<DataLossError>("[load] {}: expected the tensor {}, got {}", what, line_at(saved),
                      line_at(present));
}

void check_copies(const Named& tensors, const std::vector<Variable>& variables,
                  const std::string& what) {
  for (const Variable& variable : variables) {
    if (!copies_differ(variable)) continue;
    for (std::size_t replica = 0; replica < variable.impl().num_copies(); ++replica)
      if (const auto found = tensors.find(copy_name(replica, variable)); found != tensors.end())
        check_variables({variable}, {{variable.name(), found->second}}, what);
  }
}

// Names all differences in one message.
void check_config(const TensorFile& file, const std::map<std::string, std::string>& config,
                  const std::string& what) {
  std::string differences;
  for (const auto& [key, value] : config) {
    const auto found = file.metadata.find(kConfig + key);
    if (found != file.metadata.end() && found->second == value) continue;
    const std::string saved =
        found == file.metadata.end() ? "nothing" : fmt::format("'{}'", found->second);
    differences += fmt::format("{}with {} for {}, expected '{}'", differences.empty() ? "" : "; ",
                               saved, key, value);
  }
  if (!differences.empty())
    fail<InvalidArgumentError>("[load] {} was written {}", what, differences);
}

TrainingProgress& progress_of(const Model& model, const char* what) {
  TrainingProgress* progress = impl_of(model, what).progress;
  if (!progress)
    fail<FailedPreconditionError>("[{}] a training state exists only while fit() runs", what);
  return *progress;
}

// Whether each worker has a tensor of this name for itself.
bool is_own(const std::string& name) {
  return name.starts_with(kCopies) || name.starts_with(kStatistics);
}

// The layout of the tensors of all workers.
std::string layout_over_workers(const Named& tensors,
                                const std::shared_ptr<WorkerCollectives>& workers) {
  std::set<std::string> lines = layout_of(tensors);
  if (!workers) return join(lines);
  for (const std::string& text : workers->gather_bytes(join(lines), "training state")) {
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) lines.insert(line + "\n");
  }
  return join(lines);
}

}  // namespace

std::vector<std::string> log_names(const Model& model) {
  const TrainingProgress* progress = impl_of(model, "fit").progress;
  return progress ? progress->log_names : std::vector<std::string>();
}

void save_training_state(const Model& model, const std::filesystem::path& path,
                         const std::map<std::string, std::string>& config, CheckpointSaver& saver) {
  const TrainingProgress& progress = progress_of(model, "save");
  progress.finish_steps();
  const DeviceScope host("/cpu:0");
  Named tensors;
  put_all(tensors, kModel, values_of(model.variables()));
  put_all(tensors, kOptimizer, values_of(model.optimizer().variables()));
  save_copies(tensors, model.variables());
  put_all(tensors, kStatistics, progress.statistics.state());
  for (const auto& [name, values] : progress.history.history)
    tensors[kHistory + name] = constant(values, {.dtype = float64});
  if (!progress.history.epoch.empty())
    tensors[kHistoryEpochs] = constant(progress.history.epoch, {.dtype = int64});
  for (std::size_t i = 0; i < progress.callbacks.size(); ++i)
    put_all(tensors, fmt::format("{}{}/", kCallbacks, i), progress.callbacks[i]->state());

  const std::shared_ptr<WorkerCollectives> workers = impl_of(model, "save").runner->workers();
  const random::GeneratorState generator = random::get_state();
  std::map<std::string, std::string> metadata = {
      {kTrainingState, kVersion},
      {"epoch", std::to_string(progress.epoch)},
      {"step", std::to_string(progress.step)},
      {"data.pass", std::to_string(progress.data.pass)},
      {"data.batch", std::to_string(progress.data.batch)},
      {"random.seed", std::to_string(generator.seed)},
      {"random.offset", std::to_string(generator.offset)},
      {kLayout, layout_over_workers(tensors, workers)}};
  // A schedule is part of the program, but a fixed learning rate may have been set by a callback,
  // also in place of a schedule.
  const optimizers::Optimizer::Impl& optimizer = model.optimizer().defined_impl();
  if (!optimizer.scheduled())
    metadata[optimizer.schedule() ? kReplacedSchedule : kLearningRate] =
        fmt::format("{}", optimizer.learning_rate());
  for (const auto& [key, value] : config) metadata[kConfig + key] = value;

  std::vector<TensorToSave> to_save;
  for (const auto& [name, tensor] : tensors)
    to_save.push_back({.name = name, .value = tensor, .replicated = !is_own(name)});
  saver.save(path, std::move(to_save), metadata, workers);
}

bool load_training_state(Model& model, const std::filesystem::path& path,
                         const std::map<std::string, std::string>& config, bool must_exist) {
  TrainingProgress& progress = progress_of(model, "load");
  const std::string what = fmt::format("'{}'", path.string());
  const std::optional<TensorFile> found =
      load_checkpoint(path, must_exist, impl_of(model, "load").runner->workers());
  if (!found) return false;
  const TensorFile& file = *found;
  const auto version = file.metadata.find(kTrainingState);
  if (version == file.metadata.end() || version->second != kVersion)
    fail<InvalidArgumentError>("[load] {} is no training checkpoint of version {}, got {}", what,
                               kVersion, version == file.metadata.end() ? "none" : version->second);
  check_config(file, config, what);
  const auto epoch = parse_number<std::int64_t>(file, "epoch", what);
  const auto step = parse_number<std::int64_t>(file, "step", what);
  const DataPosition data = {.pass = parse_number<std::int64_t>(file, "data.pass", what),
                             .batch = parse_number<std::int64_t>(file, "data.batch", what)};
  const random::GeneratorState generator = {
      .seed = parse_number<std::uint64_t>(file, "random.seed", what),
      .offset = parse_number<std::uint64_t>(file, "random.offset", what)};
  const std::optional<optimizers::LearningRate>& schedule =
      model.optimizer().defined_impl().schedule();
  const optimizers::LearningRate rate =
      !schedule ? parse_number<double>(file, kLearningRate, what)
      : file.metadata.contains(kReplacedSchedule)
          ? optimizers::LearningRate(parse_number<double>(file, kReplacedSchedule, what))
          : *schedule;
  const Named weights = group(file.tensors, kModel), slots = group(file.tensors, kOptimizer);
  const std::vector<Variable> variables = model.variables();
  check_variables(variables, weights, what);
  check_variables(model.optimizer().variables(), slots, what);
  check_copies(file.tensors, variables, what);
  progress.statistics.restore(group(file.tensors, kStatistics));
  for (std::size_t i = 0; i < progress.callbacks.size(); ++i)
    progress.callbacks[i]->restore(model, group(file.tensors, fmt::format("{}{}/", kCallbacks, i)));

  check_layout(file, what);

  // All checks have passed; the model changes from here on.
  restore_variables(variables, weights, what);
  restore_variables(model.optimizer().variables(), slots, what);
  restore_copies(file.tensors, variables);
  progress.history = {};
  for (const auto& [name, values] : group(file.tensors, kHistory))
    progress.history.history[name] = values.to_vector<double>();
  if (const auto epochs = file.tensors.find(kHistoryEpochs); epochs != file.tensors.end())
    progress.history.epoch = epochs->second.to_vector<std::int64_t>();
  model.optimizer().defined_impl().set_learning_rate(rate);
  random::set_state(generator);
  progress.epoch = epoch;
  progress.step = step;
  progress.data = data;
  return true;
}

std::string weights_prefix(const CheckpointReader& checkpoint,
                           const std::vector<Variable>& variables) {
  if (checkpoint.metadata().contains(kTrainingState)) return kModel;
  if (variables.empty()) return {};
  const std::string& name = variables.front().name();
  const auto& tensors = checkpoint.tensors();
  return !tensors.contains(name) && tensors.contains(kModel + name) ? kModel : "";
}

}  // namespace tandem
