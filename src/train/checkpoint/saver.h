// Saves checkpoints by one process or by all workers of a strategy, now or on another thread.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/worker_collectives.h"
#include "tandem/checkpoint.h"
#include "train/checkpoint/parts.h"

namespace tandem {

// With several workers, all of them call the same functions in the same order.
//
// A single process replaces the file of the checkpoint. Workers that share the directory write one
// part each: its own tensors, and its share of those that all have. Then the chief replaces the
// index. If a worker does not see the chief's directory, the chief gets the others' tensors and
// writes alone.
//
// Not thread-safe.
class CheckpointSaver {
 public:
  explicit CheckpointSaver(const CheckpointOptions& options);
  ~CheckpointSaver();
  CheckpointSaver(const CheckpointSaver&) = delete;
  CheckpointSaver& operator=(const CheckpointSaver&) = delete;

  // Completes the save before, then saves. Only the chief's metadata counts. `workers`: null if
  // there is only this process. Throws as Checkpoint::save() does; all workers throw then.
  void save(const std::filesystem::path& path, std::vector<TensorToSave> tensors,
            const std::map<std::string, std::string>& metadata,
            const std::shared_ptr<WorkerCollectives>& workers);
  // Completes a background save once every worker has written its part.
  void poll();
  // Waits until the last save is complete. Throws its error.
  void wait();
  // Waits for the thread and forgets the save: the other workers may have failed.
  void discard();

 private:
  struct Pending;

  bool sees_directory_of_chief(const std::filesystem::path& path, WorkerCollectives& workers);
  void start(std::unique_ptr<Pending> pending);

  const CheckpointOptions options_;
  std::unique_ptr<Pending> pending_;
  // Whether all workers see the files that the chief writes in a directory.
  std::map<std::filesystem::path, bool> shared_;
};

// The checkpoint of the chief on every worker; none if it does not exist and need not. Throws the
// errors of CheckpointReader. `workers`: null if there is only this process.
std::optional<TensorFile> load_checkpoint(const std::filesystem::path& path, bool must_exist,
                                          const std::shared_ptr<WorkerCollectives>& workers);

}  // namespace tandem
