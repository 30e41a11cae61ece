#include <algorithm>
#include <charconv>
#include <exception>

#include "core/log.h"
#include "core/status.h"
#include "runtime/variable_impl.h"
#include "tandem/array.h"
#include "tandem/checkpoint.h"
#include "tandem/device.h"
#include "tandem/random.h"
#include "train/checkpoint/index.h"
#include "train/checkpoint/reader.h"
#include "train/checkpoint/safetensors.h"
#include "train/checkpoint/saver.h"

namespace tandem {

namespace {

constexpr const char* kSeed = "random.seed";
constexpr const char* kOffset = "random.offset";

std::uint64_t take_number(std::map<std::string, std::string>& metadata, const char* key,
                          const std::string& what) {
  const auto entry = metadata.extract(key);
  std::uint64_t number = 0;
  const std::string text = entry.empty() ? std::string() : entry.mapped();
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || stop != text.data() + text.size())
    fail_damaged(what, fmt::format("it has no number '{}'", key));
  return number;
}

}  // namespace

struct Checkpoint::State {
  using Tensors = std::map<std::string, Tensor>;

  State(std::map<std::string, CheckpointGroup> checkpointed, const CheckpointOptions& options)
      : groups(std::move(checkpointed)), saver(options) {
    std::map<std::string, Variable> named;
    for (const auto& [name, group] : groups)
      if (group.fixed_) add(name, group.variables(), named);
  }

  // Adds the variables of a group by the names of their tensors.
  static void add(const std::string& group, const std::vector<Variable>& variables,
                  std::map<std::string, Variable>& named) {
    for (const Variable& variable : variables)
      if (!named.emplace(fmt::format("{}/{}", group, variable.name()), variable).second)
        fail<InvalidArgumentError>(
            "[Checkpoint] two variables of group '{}' are named '{}'; give their layers unique "
            "names",
            group, variable.name());
  }

  std::map<std::string, Variable> named() const {
    std::map<std::string, Variable> all;
    for (const auto& [name, group] : groups) add(name, group.variables(), all);
    return all;
  }

  // Null if there is only this process.
  std::shared_ptr<WorkerCollectives> workers() const {
    for (const auto& [name, group] : groups) {
      if (group.built_ && !group.built_()) continue;
      for (const Variable& variable : group.variables())
        if (auto of_variable = variable.impl().workers()) return of_variable;
    }
    return nullptr;
  }

  // Makes the slots of an optimizer for which there are tensors.
  void make_slots(const CheckpointGroup& optimizer, Tensors missing) const {
    for (const Variable& variable : optimizer.variables()) missing.erase(variable.name());
    if (missing.empty()) return;
    std::vector<Variable> all, with_slots;
    for (const auto& [name, group] : groups) {
      if (group.build_) continue;
      for (const Variable& variable : group.variables()) {
        if (!variable.trainable() || !is_floating(variable.dtype())) continue;
        all.push_back(variable);
        const std::string slots = fmt::format("{}/{}/", optimizer.name_(), variable.name());
        const auto first = missing.lower_bound(slots);
        if (first != missing.end() && first->first.starts_with(slots))
          with_slots.push_back(variable);
      }
    }
    // An optimizer without slots counts its steps.
    const std::vector<Variable>& built = with_slots.empty() ? all : with_slots;
    if (!built.empty()) optimizer.build_(built);
  }

  std::map<std::string, CheckpointGroup> groups;
  CheckpointSaver saver;
};

std::map<std::string, CheckpointGroup> CheckpointObjects::groups() const {
  std::map<std::string, CheckpointGroup> named;
  if (step) named.emplace("step", *step);
  if (model) named.emplace("model", *model);
  if (optimizer) named.emplace("optimizer", *optimizer);
  if (net) named.emplace("net", *net);
  return named;
}

CheckpointGroup::CheckpointGroup(std::vector<Variable> variables)
    : fixed_(true), variables_([variables = std::move(variables)] { return variables; }) {}
CheckpointGroup::CheckpointGroup(std::initializer_list<Variable> variables)
    : CheckpointGroup(std::vector<Variable>(variables)) {}
CheckpointGroup::CheckpointGroup(const Variable& variable)
    : CheckpointGroup(std::vector<Variable>{variable}) {}

std::vector<Variable> CheckpointGroup::variables() const { return variables_(); }

Checkpoint::Checkpoint(std::map<std::string, CheckpointGroup> groups,
                       const CheckpointOptions& options)
    : state_(std::make_unique<State>(std::move(groups), options)) {}
Checkpoint::Checkpoint(Checkpoint&&) noexcept = default;
Checkpoint& Checkpoint::operator=(Checkpoint&&) noexcept = default;

Checkpoint::~Checkpoint() {
  // Other workers may not take part if an error ends this one.
  if (!state_ || std::uncaught_exceptions() > 0) return;
  try {
    state_->saver.wait();
  } catch (const std::exception& error) {
    logging::warn("[Checkpoint] {}", error.what());
  }
}

std::filesystem::path Checkpoint::save(const std::filesystem::path& path,
                                       const std::map<std::string, std::string>& metadata) {
  const DeviceScope host("/cpu:0");
  const random::GeneratorState generator = random::get_state();
  std::map<std::string, std::string> all = metadata;
  all[kSeed] = std::to_string(generator.seed);
  all[kOffset] = std::to_string(generator.offset);
  std::vector<TensorToSave> tensors;
  for (const auto& [name, variable] : state_->named())
    tensors.push_back({.name = name, .value = variable.value()});
  state_->saver.save(path, std::move(tensors), all, state_->workers());
  return path;
}

void Checkpoint::wait() { state_->saver.wait(); }

std::map<std::string, std::string> Checkpoint::restore(const std::filesystem::path& given) {
  std::string path = given.string();
  const std::shared_ptr<WorkerCollectives> workers = state_->workers();
  if (workers) path = workers->broadcast_bytes(path, "path of the checkpoint");
  if (path.empty()) return {};
  TensorFile file = load_checkpoint(path, /*must_exist=*/true, workers).value();
  const std::string what = fmt::format("'{}'", path);
  random::GeneratorState generator;
  generator.seed = take_number(file.metadata, kSeed, path);
  generator.offset = take_number(file.metadata, kOffset, path);
  std::map<std::string, std::map<std::string, Tensor>> tensors;  // by group
  for (const auto& [name, value] : file.tensors) {
    const std::size_t slash = name.find('/');
    tensors[name.substr(0, slash)].emplace(
        slash == std::string::npos ? name : name.substr(slash + 1), value);
  }
  for (const auto& [group, values] : tensors)
    if (!state_->groups.contains(group))
      fail<InvalidArgumentError>("[load] {}: there is no group '{}'", what, group);
  for (const auto& [name, group] : state_->groups)
    if (group.build_) state_->make_slots(group, tensors[name]);
  std::map<std::string, std::vector<Variable>> variables;
  for (const auto& [name, group] : state_->groups) {
    variables[name] = group.variables();
    check_variables(variables[name], tensors[name], what);
  }
  for (const auto& [name, of_group] : variables) restore_variables(of_group, tensors[name], what);
  random::set_state(generator);
  return file.metadata;
}

CheckpointPath latest_checkpoint(const std::filesystem::path& directory, const std::string& name) {
  std::error_code error;
  if (!std::filesystem::is_directory(directory, error)) return {};
  const auto files = numbered_files(directory, name);
  return files.empty() ? std::filesystem::path() : files.back().second;
}

CheckpointManager::CheckpointManager(Checkpoint& checkpoint, std::filesystem::path directory,
                                     CheckpointManagerOptions options)
    : checkpoint_(checkpoint), directory_(std::move(directory)), options_(std::move(options)) {
  if (options_.name.empty() || options_.name.find('/') != std::string::npos)
    fail<InvalidArgumentError>("[CheckpointManager] expected a name without a slash, got '{}'",
                               options_.name);
  std::error_code error;
  std::filesystem::create_directories(directory_, error);
  if (error)
    fail<FailedPreconditionError>("[CheckpointManager] cannot make the directory '{}': {}",
                                  directory_.string(), error.message());
}

std::filesystem::path CheckpointManager::save(std::int64_t step,
                                              std::map<std::string, std::string> metadata) {
  if (step < 0)
    fail<InvalidArgumentError>("[CheckpointManager] expected a step of at least 0, got {}", step);
  last_step_ = std::max(last_step_, step);
  metadata["step"] = std::to_string(step);
  std::filesystem::path path = directory_ / fmt::format("{}-{}.safetensors", options_.name, step);
  checkpoint_.save(path, metadata);
  const std::shared_ptr<WorkerCollectives> workers = checkpoint_.state_->workers();
  if (workers && !workers->is_chief()) return path;
  const std::vector<std::filesystem::path> all = checkpoints();
  if (options_.max_to_keep > 0 && all.size() > options_.max_to_keep)
    for (std::size_t i = 0; i < all.size() - options_.max_to_keep; ++i) remove_checkpoint(all[i]);
  return path;
}

std::filesystem::path CheckpointManager::save() {
  const auto files = numbered_files(directory_, options_.name);
  std::int64_t step = std::max(last_step_, files.empty() ? 0 : files.back().first) + 1;
  if (const auto workers = checkpoint_.state_->workers())
    step = std::stoll(workers->broadcast_bytes(std::to_string(step), "number of the checkpoint"));
  return save(step);
}

std::vector<std::filesystem::path> CheckpointManager::checkpoints() const {
  std::vector<std::filesystem::path> paths;
  for (auto& [step, path] : numbered_files(directory_, options_.name))
    paths.push_back(std::move(path));
  return paths;
}

CheckpointPath CheckpointManager::latest_checkpoint() const {
  return tandem::latest_checkpoint(directory_, options_.name);
}

std::optional<std::map<std::string, std::string>> CheckpointManager::restore_latest() {
  std::string latest = latest_checkpoint().string();
  if (const auto workers = checkpoint_.state_->workers())
    latest = workers->broadcast_bytes(latest, "latest checkpoint");
  if (latest.empty()) return std::nullopt;
  return checkpoint_.restore(latest);
}

namespace {

TensorToSave slice_of(const CheckpointReader& from, const std::string& name,
                      const TensorRange& range, const ConvertOptions& options) {
  const CheckpointTensor& tensor = from.at(name);
  TensorToSave slice{.name = name.substr(options.prefix.size()), .value = from.read(name, range)};
  if (options.dtype && is_floating(tensor.dtype)) slice.value = slice.value.to(*options.dtype);
  if (!(range.shape == tensor.shape))
    slice.slice = TensorToSave::Slice{.shape = tensor.shape, .range = range};
  return slice;
}

// The tensors of shard `shard`, read from the checkpoint.
std::vector<TensorToSave> shard_of(const CheckpointReader& from, int shard,
                                   const ConvertOptions& options) {
  std::vector<TensorToSave> tensors;
  for (const auto& [name, dtype] : from.foreign())
    if (name.starts_with(options.prefix)) from.at(name);  // throws
  for (const auto& [name, tensor] : from.tensors()) {
    if (!name.starts_with(options.prefix)) continue;
    const std::vector<TensorRange> ranges = divide(tensor.shape, options.shards);
    if (static_cast<std::size_t>(shard) < ranges.size())
      tensors.push_back(slice_of(from, name, ranges[static_cast<std::size_t>(shard)], options));
  }
  return tensors;
}

void check(const ConvertOptions& options) {
  constexpr int kMaxShards = 10'000;
  if (options.shards < 1 || options.shards > kMaxShards)
    fail<InvalidArgumentError>("[convert_checkpoint] expected 1 to {} shards, got {}", kMaxShards,
                               options.shards);
  if (options.dtype && !is_floating(*options.dtype))
    fail<InvalidArgumentError>("[convert_checkpoint] expected a floating-point dtype, got {}",
                               name_of(*options.dtype));
}

}  // namespace

void convert_checkpoint(const std::filesystem::path& from, const std::filesystem::path& to,
                        const ConvertOptions& options) {
  check(options);
  const DeviceScope host("/cpu:0");
  const CheckpointReader source(from);
  const std::filesystem::path path = resolve_link(to);
  // The metadata of a training state describes its tensors.
  std::map<std::string, std::string> metadata;
  if (!options.dtype && options.prefix.empty()) metadata = source.metadata();
  if (options.shards == 1) return commit_single(path, shard_of(source, 0, options), metadata);
  const std::string id = make_save_id();
  std::vector<CheckpointIndex> parts;
  for (int shard = 0; shard < options.shards; ++shard) {
    const std::vector<TensorToSave> tensors = shard_of(source, shard, options);
    if (!tensors.empty())
      parts.push_back(write_part(path, part_name(path, id, shard, options.shards), tensors));
  }
  CheckpointIndex index = merge(parts, path.string());
  index.metadata = metadata;
  commit_index(path, index);
}

}  // namespace tandem
