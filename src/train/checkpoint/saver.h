// Saves checkpoints by one process or by all workers of a strategy, now or on another thread.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "runtime/worker_collectives.h"
#include "tandem/checkpoint.h"
#include "train/checkpoint/index.h"

namespace tandem {

// A tensor to save, or a slice of it.
struct TensorToSave {
  std::string name;
  Tensor value;  // on any device; undefined if `load` gives it
  // The shape of the whole tensor, and which elements `value` has; none: all.
  struct Slice {
    Shape shape;
    TensorRange range;
  };
  std::optional<Slice> slice{};
  // Whether all workers pass this tensor, with equal elements. One of them writes it.
  bool replicated = true;
};

// The target of a symbolic link, or the path itself.
std::filesystem::path resolve_link(const std::filesystem::path& path);

// Eight hexadecimal digits that differ between saves, so that their files do.
std::string make_save_id();
// The name of one of the files of a save to `path`.
std::string part_name(const std::filesystem::path& path, const std::string& save_id, int part,
                      int parts);

// Writes a file beside `path`, durably, and returns its index. Throws the errors of
// save_safetensors().
CheckpointIndex write_part(const std::filesystem::path& path, const std::string& name,
                           const std::vector<TensorToSave>& tensors);
// Replaces `path` by an index, and removes the files of the one before. Throws
// InvalidArgumentError for slices that overlap or leave elements out, and the errors of
// save_safetensors().
void commit_index(const std::filesystem::path& path, const CheckpointIndex& index);
// Replaces `path` by one file with whole tensors.
void commit_single(const std::filesystem::path& path, const std::vector<TensorToSave>& tensors,
                   const std::map<std::string, std::string>& metadata);

// Removes what saves to `path` that did not end have left: files that its index does not name,
// and temporary files of ended processes of this host.
void remove_unused_parts(const std::filesystem::path& path);

// --- savers ---

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
