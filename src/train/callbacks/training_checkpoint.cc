#include <utility>

#include "core/log.h"
#include "core/status.h"
#include "train/model_impl.h"
#include "train/training_state.h"

namespace tandem::callbacks {
namespace {

struct Policy {
  std::optional<std::int64_t> save_freq;
  bool must_exist = false;  // whether a missing file is an error
  bool may_exist = false;
  bool delete_at_end = false;
  bool background = false;
  std::map<std::string, std::string> config;
};

class CheckpointImpl final : public CallbackBase {
 public:
  CheckpointImpl(const char* name, std::filesystem::path path, Policy policy)
      : path_(std::move(path)),
        policy_(std::move(policy)),
        saver_({.background = policy_.background}) {
    if (policy_.save_freq && *policy_.save_freq < 1)
      fail<InvalidArgumentError>("[{}] expected save_freq of at least 1, got {}", name,
                                 *policy_.save_freq);
  }

  bool runs_last() const override { return true; }

  void on_train_begin(Model& model) override {
    saver_.discard();  // that of a call of fit() that failed
    if (!policy_.must_exist && !policy_.may_exist) return;
    if (impl_of(model, "load").is_chief()) remove_unused_parts(path_);  // of a run that was killed
    load_training_state(model, path_, policy_.config, policy_.must_exist);
  }

  void on_epoch_begin(Model& model, std::int64_t) override {
    steps_ = impl_of(model, "save").progress->step;
  }

  void on_train_batch_end(Model& model, std::int64_t batch, const Logs&) override {
    saver_.poll();
    // An execution may have several steps.
    const std::int64_t before = std::exchange(steps_, batch + 1);
    const bool due = policy_.save_freq && steps_ / *policy_.save_freq > before / *policy_.save_freq;
    if (due || impl_of(model, "save").stop) save(model);
  }

  void on_epoch_end(Model& model, std::int64_t, const Logs&) override {
    if (!within_epoch(model)) save(model);
  }

  void on_train_end(Model& model) override {
    saver_.wait();
    if (!policy_.delete_at_end || within_epoch(model) || !impl_of(model, "save").is_chief()) return;
    try {
      remove_checkpoint(path_);
    } catch (const Error& error) {
      logging::warn("[BackupAndRestore] {}", error.what());
    }
  }

 private:
  // After an epoch that was stopped, its last step has saved the state.
  static bool within_epoch(const Model& model) { return impl_of(model, "save").progress->step > 0; }
  void save(const Model& model) { save_training_state(model, path_, policy_.config, saver_); }

  std::filesystem::path path_;
  Policy policy_;
  CheckpointSaver saver_;
  std::int64_t steps_ = 0;  // of the epoch
};

std::filesystem::path backup_in(const std::filesystem::path& directory) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error)
    fail<FailedPreconditionError>("[BackupAndRestore] cannot make the directory '{}': {}",
                                  directory.string(), error.message());
  return directory / "training.safetensors";
}

}  // namespace

TrainingCheckpoint::TrainingCheckpoint(const std::filesystem::path& path,
                                       const TrainingCheckpointOptions& options)
    : Callback(std::make_shared<CheckpointImpl>("TrainingCheckpoint", path,
                                                Policy{.save_freq = options.save_freq,
                                                       .must_exist = options.resume,
                                                       .background = options.background,
                                                       .config = options.config})) {}

BackupAndRestore::BackupAndRestore(const std::filesystem::path& directory,
                                   const BackupAndRestoreOptions& options)
    : Callback(std::make_shared<CheckpointImpl>("BackupAndRestore", backup_in(directory),
                                                Policy{.save_freq = options.save_freq,
                                                       .may_exist = true,
                                                       .delete_at_end = options.delete_checkpoint,
                                                       .background = options.background,
                                                       .config = {}})) {}

}  // namespace tandem::callbacks
