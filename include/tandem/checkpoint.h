/// @file
/// Checkpoints: tensors in files that load under any strategy and number of replicas, and
/// restoring variables from them.
///
/// A checkpoint is a safetensors file, or an index: a JSON file that names the safetensors files
/// beside it, which hold slices of the tensors. Every function that loads a checkpoint takes both,
/// and the index of a sharded model of the transformers library (`model.safetensors.index.json`).
#pragma once

#include <chrono>
#include <concepts>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tandem/tensor.h"
#include "tandem/variable.h"

namespace tandem {

/// Contents of a safetensors file.
struct TensorFile {
  std::map<std::string, Tensor> tensors{};        ///< by name; on the host
  std::map<std::string, std::string> metadata{};  ///< strings of the "__metadata__" entry
};

/// Writes a file in the safetensors format, which the Python package of that name reads. Writes a
/// temporary file, syncs it and renames it, so that a full disk or a crash leaves the old file
/// unchanged. The metadata gets a CRC-32 of the data. Throws ResourceExhaustedError (disk full) or
/// NotFoundError (no such directory) and names the path.
void save_safetensors(const std::filesystem::path& path, const TensorFile& file);
/// Reads a safetensors file. Throws NotFoundError, DataLossError (truncated, bad header, offsets
/// that overlap or exceed the file, wrong checksum) or InvalidArgumentError (a dtype that Tandem
/// does not have), and names the path and the tensor.
TensorFile load_safetensors(const std::filesystem::path& path);

/// A rectangular range of a tensor's elements.
struct TensorRange {
  Dims offset{};  ///< the first index along each axis
  Shape shape{};  ///< the sizes; of the tensor's rank
  /// Whether offsets and sizes are equal.
  friend bool operator==(const TensorRange&, const TensorRange&) = default;
};

/// The elements of a range that a file holds.
struct CheckpointSlice {
  TensorRange range{};      ///< which elements
  std::size_t file = 0;     ///< index in CheckpointReader::files()
  std::uint64_t begin = 0;  ///< the position of the first byte in the file
  /// CRC-32 of each chunk of 1 MiB of the slice's bytes. Empty if the checkpoint has none.
  std::vector<std::uint32_t> chunk_crcs{};
};

/// One tensor of a checkpoint.
struct CheckpointTensor {
  DType dtype = DType::kFloat32;  ///< dtype
  Shape shape{};                  ///< shape of the whole tensor
  /// Slices that do not overlap and together are the whole tensor.
  std::vector<CheckpointSlice> slices{};
  /// Number of bytes of all elements.
  std::uint64_t bytes() const {
    return static_cast<std::uint64_t>(shape.num_elements()) * size_of(dtype);
  }
};

/// A file of a checkpoint.
struct CheckpointFile {
  std::filesystem::path path{};  ///< path
  std::uint64_t bytes = 0;       ///< size
};

/// Reads any part of any tensor of a checkpoint. Reading is from disk, when asked, and of the
/// chunks that hold the elements alone. A checkpoint that is replaced while it is read remains
/// readable. As TensorFlow's CheckpointReader (tf.train.load_checkpoint). Not thread-safe.
class CheckpointReader {
 public:
  /// Opens a checkpoint and checks its index: that files have the recorded sizes, and that the
  /// slices of each tensor neither overlap nor leave elements out. Throws NotFoundError,
  /// DataLossError or InvalidArgumentError as load_safetensors() does.
  explicit CheckpointReader(const std::filesystem::path& path);

  const std::map<std::string, CheckpointTensor>& tensors() const;  ///< by name
  /// The dtypes of tensors that other programs have saved in one that Tandem does not have, such as
  /// "I8", by name. at() and read() throw InvalidArgumentError for them.
  const std::map<std::string, std::string>& foreign() const;
  const std::map<std::string, std::string>& metadata() const;  ///< strings
  const std::vector<CheckpointFile>& files() const;            ///< the files with tensors
  /// Whether the tensors are described by an index, and not by the only file.
  bool indexed() const;
  /// Whether all elements have checksums. Other programs' files have none.
  bool has_checksums() const;

  /// The description of a tensor. Throws NotFoundError that names it.
  const CheckpointTensor& at(const std::string& name) const;
  /// Reads a tensor to the host. Throws NotFoundError, or DataLossError for a wrong checksum.
  Tensor read(const std::string& name) const;
  /// Reads the elements of a range of a tensor, whatever its slices. Throws OutOfRangeError for a
  /// range that exceeds the tensor, and the errors of read().
  Tensor read(const std::string& name, const TensorRange& range) const;
  /// Reads all tensors. Throws InvalidArgumentError if one is foreign().
  TensorFile read_all() const;

  /// Reads all files and checks every checksum, that the files' own headers agree with the index,
  /// and that booleans are 0 or 1. Throws DataLossError for the first problem, with the file and
  /// the tensor.
  void verify() const;

 private:
  class Impl;
  std::shared_ptr<const Impl> impl_;
};

/// Options of convert_checkpoint().
struct ConvertOptions {
  /// 1: one safetensors file, which other programs open. More: an index, and at most this many
  /// files. Each tensor is divided along its first axis into slices whose sizes differ by at most
  /// one, as a partitioner does: 13 rows in 5 shards are 3, 3, 3, 2 and 2.
  int shards = 1;
  std::optional<DType> dtype{};  ///< dtype of all floating-point tensors; default: unchanged
  /// Only the tensors whose names begin so, under the rest of their names, such as "model/".
  std::string prefix{};
};
/// Writes the tensors and the metadata of checkpoint `from` to the checkpoint `to`, which is
/// replaced completely or not at all. Throws InvalidArgumentError for options out of range, and the
/// errors of CheckpointReader and save_safetensors().
void convert_checkpoint(const std::filesystem::path& from, const std::filesystem::path& to,
                        const ConvertOptions& options = {});
/// Removes a checkpoint with all its files. Does nothing if there is none. Throws a tandem::Error
/// if a file cannot be removed.
void remove_checkpoint(const std::filesystem::path& path);

/// Assigns to each variable the tensor of its name. `what` describes the source in messages. Throws
/// NotFoundError for missing tensors and InvalidArgumentError for extra ones and for other shapes
/// or dtypes. Assigns nothing if it throws.
void restore_variables(const std::vector<Variable>& variables,
                       const std::map<std::string, Tensor>& tensors, const std::string& what);

/// Options of Checkpoint.
struct CheckpointOptions {
  /// Writes on another thread. The values are those at the time of the call.
  bool background = false;
  /// How long a save may wait for the background save before it.
  std::chrono::milliseconds timeout = std::chrono::minutes(30);
};

/// One group of a Checkpoint: a variable, a list of variables, or an object with variables(), such
/// as a model, a layer or an optimizer. The variables of an object are those that it has at the
/// time of each save() and restore(). The group shares the object if it is a handle, as those are.
class CheckpointGroup {
 public:
  /// @{
  /// These variables.
  CheckpointGroup(std::vector<Variable> variables);            // NOLINT: implicit
  CheckpointGroup(std::initializer_list<Variable> variables);  // NOLINT: implicit
  CheckpointGroup(const Variable& variable);                   // NOLINT: implicit
  /// @}
  /// The variables of this object. For an optimizer, restore() makes the slots that the checkpoint
  /// has, as Optimizer::build() does, for trainable floating-point variables of the other groups.
  template <class Object>
  requires(!std::same_as<Object, CheckpointGroup> &&
           requires(const Object& object) {
             { object.variables() } -> std::convertible_to<std::vector<Variable>>;
           }) CheckpointGroup(const Object& object)  // NOLINT: implicit
      : variables_([object] { return object.variables(); }) {
    if constexpr (requires {
                    { object.built() } -> std::same_as<bool>;
                  })
      built_ = [object] { return object.built(); };
    if constexpr (requires(Object optimizer, const std::vector<Variable>& of) {
                    optimizer.build(of);
                    { optimizer.name() } -> std::convertible_to<std::string>;
                  }) {
      name_ = [object] { return std::string(object.name()); };
      build_ = [object](const std::vector<Variable>& of) {
        Object optimizer = object;
        optimizer.build(of);
      };
    }
  }

  /// The variables now. Throws FailedPreconditionError for a model that is not built.
  std::vector<Variable> variables() const;

 private:
  friend class Checkpoint;
  bool fixed_ = false;
  std::function<bool()> built_;  // whether it has its variables; empty: yes
  std::function<std::vector<Variable>()> variables_;
  std::function<std::string()> name_;                        // of an optimizer
  std::function<void(const std::vector<Variable>&)> build_;  // of an optimizer
};

/// The groups "step", "model", "optimizer" and "net" of a Checkpoint by name. As the arguments of
/// tf.train.Checkpoint; other names are those of a map.
struct CheckpointObjects {
  std::optional<CheckpointGroup> step{};       ///< a counter
  std::optional<CheckpointGroup> model{};      ///< a model
  std::optional<CheckpointGroup> optimizer{};  ///< an optimizer
  std::optional<CheckpointGroup> net{};        ///< a model, as TensorFlow's guide calls it
  /// The groups that are set.
  std::map<std::string, CheckpointGroup> groups() const;
};

/// Saves and restores groups of variables and the state of the random generator, for training loops
/// of your own. As tf.train.Checkpoint.
///
/// With several workers of a strategy all of them call save(), wait() and restore(). Each writes a
/// share of the tensors if they share the directory; otherwise the chief writes all. The chief
/// reads a checkpoint and sends it to the others.
///
/// Not thread-safe.
class Checkpoint {
 public:
  /// `groups`: the variables by group: {{"step", step}, {"optimizer", optimizer}, {"net", model}}.
  /// A tensor of the checkpoint is named GROUP/VARIABLE. Throws InvalidArgumentError for two
  /// variables of one name in a group, and so does save() if the variables are those of an object.
  explicit Checkpoint(std::map<std::string, CheckpointGroup> groups,
                      const CheckpointOptions& options = {});
  /// The same of {.model = model, .optimizer = optimizer}.
  template <std::same_as<CheckpointObjects> Objects = CheckpointObjects>
  explicit Checkpoint(const Objects& objects, const CheckpointOptions& options = {})
      : Checkpoint(objects.groups(), options) {}
  /// Waits for a background save. An error of it is logged.
  ~Checkpoint();
  Checkpoint(Checkpoint&&) noexcept;             ///< moves
  Checkpoint& operator=(Checkpoint&&) noexcept;  ///< moves

  /// Saves a checkpoint with `metadata`, such as a step and the iterator's position. A crash leaves
  /// the old one. In the background, errors are thrown by the next call of save() or wait(); with
  /// several workers the checkpoint is complete after that call. Returns the path. Throws the
  /// errors of save_safetensors(), AbortedError if another worker could not write,
  /// DeadlineExceededError, and FailedPreconditionError for a model that is not built.
  std::filesystem::path save(const std::filesystem::path& path,
                             const std::map<std::string, std::string>& metadata = {});
  /// Waits until the last save is complete. Throws its error.
  void wait();
  /// Restores the variables and the random generator, and returns the metadata. An empty path
  /// restores nothing and returns nothing, so that latest_checkpoint() may be passed before there
  /// is a checkpoint. (With several workers the chief's path counts.) Throws the errors of
  /// CheckpointReader and restore_variables(), and FailedPreconditionError for a model that is not
  /// built; then no variable changes.
  std::map<std::string, std::string> restore(const std::filesystem::path& path);

 private:
  friend class CheckpointManager;
  struct State;
  std::unique_ptr<State> state_;
};

/// The path of a checkpoint, or empty: usable as a condition.
class CheckpointPath : public std::filesystem::path {
 public:
  CheckpointPath() = default;
  /// This path.
  CheckpointPath(std::filesystem::path path)  // NOLINT: a path is one
      : std::filesystem::path(std::move(path)) {}
  explicit operator bool() const { return !empty(); }               ///< whether there is one
  const std::filesystem::path& operator*() const { return *this; }  ///< the path
};

/// The newest checkpoint NAME-STEP.safetensors of a directory; empty if there is none. As
/// tf.train.latest_checkpoint.
CheckpointPath latest_checkpoint(const std::filesystem::path& directory,
                                 const std::string& name = "ckpt");

/// Options of CheckpointManager.
struct CheckpointManagerOptions {
  std::size_t max_to_keep = 5;  ///< how many checkpoints are kept, the newest; 0: all
  std::string name = "ckpt";    ///< the files are named NAME-STEP.safetensors
};

/// Keeps the newest checkpoints of a directory. As tf.train.CheckpointManager.
class CheckpointManager {
 public:
  /// `checkpoint` outlives the manager. With several workers all of them call its functions, and
  /// the chief's directory counts. The directory is made if it does not exist. Throws
  /// InvalidArgumentError for a name with a slash, and FailedPreconditionError if the directory
  /// cannot be made.
  CheckpointManager(Checkpoint& checkpoint, std::filesystem::path directory,
                    CheckpointManagerOptions options = {});

  /// Saves a checkpoint of `step`, removes the oldest ones, and returns its path. The metadata gets
  /// the entry "step". Throws InvalidArgumentError for a negative step, and the errors of
  /// Checkpoint::save().
  std::filesystem::path save(std::int64_t step, std::map<std::string, std::string> metadata = {});
  /// Saves a checkpoint whose step is the number of the save, one more than that of the newest
  /// checkpoint: 1, 2, 3 and so on in an empty directory. As save() of TensorFlow.
  std::filesystem::path save();
  /// The checkpoints of the directory by step, the oldest first.
  std::vector<std::filesystem::path> checkpoints() const;
  /// The newest one; empty if there is none.
  CheckpointPath latest_checkpoint() const;
  /// Restores the newest checkpoint and returns its metadata; none if there is none. As
  /// restore_or_initialize() of TensorFlow.
  std::optional<std::map<std::string, std::string>> restore_latest();
  /// As restore_latest().
  std::optional<std::map<std::string, std::string>> restore_or_initialize() {
    return restore_latest();
  }

 private:
  Checkpoint& checkpoint_;
  std::filesystem::path directory_;
  CheckpointManagerOptions options_;
  std::int64_t last_step_ = 0;  // of the saves of this manager, which may be in the background
};

}  // namespace tandem
