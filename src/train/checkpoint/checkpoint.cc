#include <algorithm>
#include <charconv>
#include <exception>

#include "core/log.h"
#include "core/status.h"
#include "runtime/variable_impl.h"
#include "tandem/device.h"
#include "tandem/random.h"
#include "train/checkpoint/file_errors.h"
#include "train/checkpoint/numbered_files.h"
#include "train/checkpoint/restore.h"
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
  State(std::map<std::string, std::vector<Variable>> variables, const CheckpointOptions& options)
      : groups(std::move(variables)), saver(options) {
    for (const auto& [group, members] : groups)
      for (const Variable& variable : members) {
        if (!named.emplace(fmt::format("{}/{}", group, variable.name()), variable).second)
          fail<InvalidArgumentError>(
              "[Checkpoint] two variables of group '{}' are named '{}'; give their layers unique "
              "names",
              group, variable.name());
        if (!workers) workers = variable.impl().workers();
      }
  }

  std::map<std::string, std::vector<Variable>> groups;
  std::map<std::string, Variable> named;  // by the names of their tensors
  std::shared_ptr<WorkerCollectives> workers;
  CheckpointSaver saver;
};

Checkpoint::Checkpoint(std::map<std::string, std::vector<Variable>> groups,
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

void Checkpoint::save(const std::filesystem::path& path,
                      const std::map<std::string, std::string>& metadata) {
  const DeviceScope host("/cpu:0");
  const random::GeneratorState generator = random::get_state();
  std::map<std::string, std::string> all = metadata;
  all[kSeed] = std::to_string(generator.seed);
  all[kOffset] = std::to_string(generator.offset);
  std::vector<TensorToSave> tensors;
  for (const auto& [name, variable] : state_->named)
    tensors.push_back({.name = name, .value = variable.value()});
  state_->saver.save(path, std::move(tensors), all, state_->workers);
}

void Checkpoint::wait() { state_->saver.wait(); }

std::map<std::string, std::string> Checkpoint::restore(const std::filesystem::path& path) {
  TensorFile file = load_checkpoint(path, /*must_exist=*/true, state_->workers).value();
  const std::string what = fmt::format("'{}'", path.string());
  random::GeneratorState generator;
  generator.seed = take_number(file.metadata, kSeed, path.string());
  generator.offset = take_number(file.metadata, kOffset, path.string());
  std::map<std::string, std::map<std::string, Tensor>> tensors;  // by group
  for (const auto& [name, value] : file.tensors) {
    const std::size_t slash = name.find('/');
    tensors[name.substr(0, slash)].emplace(
        slash == std::string::npos ? name : name.substr(slash + 1), value);
  }
  for (const auto& [group, values] : tensors)
    if (!state_->groups.contains(group))
      fail<InvalidArgumentError>("[load] {}: there is no group '{}'", what, group);
  for (const auto& [group, variables] : state_->groups)
    check_variables(variables, tensors[group], what);
  for (const auto& [group, variables] : state_->groups)
    restore_variables(variables, tensors[group], what);
  random::set_state(generator);
  return file.metadata;
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
  metadata["step"] = std::to_string(step);
  std::filesystem::path path = directory_ / fmt::format("{}-{}.safetensors", options_.name, step);
  checkpoint_.save(path, metadata);
  const std::shared_ptr<WorkerCollectives>& workers = checkpoint_.state_->workers;
  if (workers && !workers->is_chief()) return path;
  const std::vector<std::filesystem::path> all = checkpoints();
  if (options_.max_to_keep > 0 && all.size() > options_.max_to_keep)
    for (std::size_t i = 0; i < all.size() - options_.max_to_keep; ++i) remove_checkpoint(all[i]);
  return path;
}

std::vector<std::filesystem::path> CheckpointManager::checkpoints() const {
  std::vector<std::filesystem::path> paths;
  for (auto& [step, path] : numbered_files(directory_, options_.name))
    paths.push_back(std::move(path));
  return paths;
}

std::optional<std::filesystem::path> CheckpointManager::latest_checkpoint() const {
  const std::vector<std::filesystem::path> all = checkpoints();
  return all.empty() ? std::nullopt : std::optional(all.back());
}

std::optional<std::map<std::string, std::string>> CheckpointManager::restore_latest() {
  std::string latest = latest_checkpoint().value_or(std::filesystem::path()).string();
  if (const auto& workers = checkpoint_.state_->workers)
    latest = workers->broadcast_bytes(latest, "latest checkpoint");
  if (latest.empty()) return std::nullopt;
  return checkpoint_.restore(latest);
}

}  // namespace tandem
