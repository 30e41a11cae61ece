#include "core/atomic_file.h"
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
  std::map<std::string, std::string> config;
};

class CheckpointImpl final : public CallbackBase {
 public:
  CheckpointImpl(const char* name, std::filesystem::path path, Policy policy)
      : path_(std::move(path)), policy_(std::move(policy)) {
    if (policy_.save_freq && *policy_.save_freq < 1)
      fail<InvalidArgumentError>("[{}] expected save_freq of at least 1, got {}", name,
                                 *policy_.save_freq);
  }

  bool runs_last() const override { return true; }

  void on_train_begin(Model& model) override {
    if (!policy_.must_exist && !policy_.may_exist) return;
    if (impl_of(model, "load").is_chief()) remove_stale_files(path_);  // by a run that was killed
    load_training_state(model, path_, policy_.config, policy_.must_exist);
  }

  void on_batch_end(Model& model, std::int64_t batch, const Logs&) override {
    const bool due = policy_.save_freq && (batch + 1) % *policy_.save_freq == 0;
    if (due || impl_of(model, "save").stop) save(model);
  }

  void on_epoch_end(Model& model, std::int64_t, const Logs&) override {
    if (!within_epoch(model)) save(model);
  }

  void on_train_end(Model& model) override {
    if (!policy_.delete_at_end || within_epoch(model) || !impl_of(model, "save").is_chief()) return;
    std::error_code error;
    std::filesystem::remove(path_, error);
    if (error)
      logging::warn("[BackupAndRestore] cannot remove '{}': {}", path_.string(), error.message());
  }

 private:
  // After an epoch that was stopped, its last step has saved the state.
  static bool within_epoch(const Model& model) { return impl_of(model, "save").progress->step > 0; }
  void save(const Model& model) const { save_training_state(model, path_, policy_.config); }

  std::filesystem::path path_;
  Policy policy_;
};

}  // namespace

Callback TrainingCheckpoint(const std::filesystem::path& path,
                            const TrainingCheckpointOptions& options) {
  return Callback(std::make_shared<CheckpointImpl>(
      "TrainingCheckpoint", path,
      Policy{
          .save_freq = options.save_freq, .must_exist = options.resume, .config = options.config}));
}

Callback BackupAndRestore(const std::filesystem::path& directory,
                          const BackupAndRestoreOptions& options) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error)
    fail<FailedPreconditionError>("[BackupAndRestore] cannot make the directory '{}': {}",
                                  directory.string(), error.message());
  return Callback(
      std::make_shared<CheckpointImpl>("BackupAndRestore", directory / "training.safetensors",
                                       Policy{.save_freq = options.save_freq,
                                              .may_exist = true,
                                              .delete_at_end = options.delete_checkpoint,
                                              .config = {}}));
}

}  // namespace tandem::callbacks
