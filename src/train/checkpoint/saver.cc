#include "train/checkpoint/saver.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "core/file_error.h"
#include "core/status.h"
#include "core/threads.h"
#include "device/device_manager.h"
#include "tensor/tensor_impl.h"
#include "train/checkpoint/safetensors.h"

namespace tandem {
namespace {

constexpr char kDone = '+', kFailed = '-';
constexpr const char* kWhat = "checkpoint";  // of the collectives, in their messages

// Runs `action`, whose result all workers get, in the order of ranks. If it fails on a worker, that
// worker throws its error, and the others an AbortedError with its message.
std::vector<std::string> on_every_worker(WorkerCollectives& workers,
                                         const std::function<std::string()>& action) {
  std::exception_ptr error;
  std::string mine;
  try {
    mine = kDone + action();
  } catch (const std::exception& e) {
    error = std::current_exception();
    mine = kFailed + std::string(e.what());
  }
  std::vector<std::string> all = workers.gather_bytes(mine, kWhat);
  if (error) std::rethrow_exception(error);
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].front() == kFailed)
      fail<AbortedError>("[checkpoint] worker {} failed: {}", rank, all[rank].substr(1));
    all[rank].erase(0, 1);
  }
  return all;
}

// The same for an action of the chief.
std::string on_chief(WorkerCollectives& workers, const std::function<std::string()>& action) {
  return on_every_worker(workers, [&] { return workers.is_chief() ? action() : std::string(); })
      .front();
}

std::size_t bytes_of(const TensorToSave& tensor) {
  return static_cast<std::size_t>(tensor.value.bytes());
}

// This worker's own tensors, and its share of those that all have: each goes to the worker with the
// fewest bytes so far, the largest first.
std::vector<TensorToSave> share_of(int rank, int size, std::vector<TensorToSave> tensors) {
  std::stable_sort(tensors.begin(), tensors.end(),
                   [](const auto& a, const auto& b) { return bytes_of(a) > bytes_of(b); });
  std::vector<std::size_t> loads(static_cast<std::size_t>(size));
  std::vector<TensorToSave> mine;
  for (TensorToSave& tensor : tensors) {
    if (tensor.replicated) {
      const auto least = std::min_element(loads.begin(), loads.end());
      *least += bytes_of(tensor);
      if (least - loads.begin() != rank) continue;
    }
    mine.push_back(std::move(tensor));
  }
  return mine;
}

// Gathers the other workers' own tensors at the chief.
std::vector<TensorToSave> gather_at_chief(std::vector<TensorToSave> tensors,
                                          WorkerCollectives& workers, const std::string& what) {
  const auto gathered = on_every_worker(workers, [&] {
    TensorFile own;
    for (const TensorToSave& tensor : tensors) {
      if (tensor.replicated) continue;
      if (tensor.slice)
        fail<FailedPreconditionError>(
            "[save] '{}': expected a directory that all workers share for variable slices, got one "
            "in which a worker does not see the chief's files",
            what);
      own.tensors.emplace(tensor.name, tensor.value);
    }
    return safetensors_bytes(own, what);
  });
  if (!workers.is_chief()) return {};
  for (std::size_t rank = 1; rank < gathered.size(); ++rank)
    for (auto& [name, value] : parse_safetensors(gathered[rank], what).tensors)
      tensors.push_back({.name = name, .value = value, .replicated = false});
  return tensors;
}

// A file that exists while the workers look for it.
class Probe {
 public:
  explicit Probe(std::filesystem::path path) : path_(std::move(path)) {
    const int descriptor = open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor < 0)
      throw_file_error(fmt::format("[save] cannot create '{}'", path_.string()), errno);
    close(descriptor);
  }
  ~Probe() { unlink(path_.c_str()); }
  Probe(const Probe&) = delete;
  Probe& operator=(const Probe&) = delete;

 private:
  std::filesystem::path path_;
};

}  // namespace

// A save that may not be complete.
struct CheckpointSaver::Pending {
  std::filesystem::path path;
  std::vector<TensorToSave> tensors;
  std::map<std::string, std::string> metadata;
  std::shared_ptr<WorkerCollectives> workers;  // that write parts; null if this process is alone
  std::string part;                            // the name of this process's file; empty: `path`

  std::thread thread;
  OwnProcess process;
  std::mutex mutex;
  Condition changed;
  bool written = false;      // guarded by mutex
  CheckpointIndex index;     // of the part
  std::exception_ptr error;  // of the write

  void write() {
    try {
      if (part.empty())
        commit_single(path, tensors, metadata);
      else
        index = write_part(path, part, tensors);
      if (!workers && !part.empty()) commit({index});
    } catch (...) {
      error = std::current_exception();
    }
    tensors.clear();  // variables may be updated in place again
    const std::lock_guard lock(mutex);
    written = true;
    changed->notify_all();
  }
  bool is_written() {
    const std::lock_guard lock(mutex);
    return written;
  }

  // Once it is written. Throws the error of any worker. A part stays where it is: the chief may
  // have committed an index that names it even if this worker gets an error.
  void complete() {
    if (thread.joinable()) thread.join();
    if (workers)
      complete_with_workers();
    else if (error)
      std::rethrow_exception(error);
  }
  void complete_with_workers() {
    const std::vector<std::string> indices = on_every_worker(*workers, [&] {
      if (error) std::rethrow_exception(error);
      return index_text(index, path.string());
    });
    on_chief(*workers, [&] {
      std::vector<CheckpointIndex> parts;
      for (const std::string& text : indices)
        parts.push_back(parse_index(text, path.string(), /*complete=*/false));
      commit(parts);
      return std::string();
    });
  }
  void commit(const std::vector<CheckpointIndex>& parts) const {
    CheckpointIndex all = merge(parts, path.string());
    all.metadata = metadata;
    commit_index(path, all);
  }
};

CheckpointSaver::CheckpointSaver(const CheckpointOptions& options) : options_(options) {
  if (options.timeout <= std::chrono::milliseconds(0))
    fail<InvalidArgumentError>("[save] expected a positive timeout, got {} ms",
                               options.timeout.count());
}

CheckpointSaver::~CheckpointSaver() { discard(); }

void CheckpointSaver::discard() {
  if (pending_) pending_->process.join(pending_->thread);
  pending_.reset();
}

bool CheckpointSaver::sees_directory_of_chief(const std::filesystem::path& path,
                                              WorkerCollectives& workers) {
  const std::filesystem::path directory = path.parent_path();
  if (const auto known = shared_.find(directory); known != shared_.end()) return known->second;
  std::optional<Probe> probe;
  const std::string name = on_chief(workers, [&] {
    const std::string file = fmt::format(".{}.{}.probe", path.filename().string(), make_save_id());
    probe.emplace(directory / file);
    return file;
  });
  const auto seen = on_every_worker(workers, [&] {
    std::error_code error;
    return std::string(std::filesystem::exists(directory / name, error) ? "1" : "0");
  });
  const bool shared = std::all_of(seen.begin(), seen.end(),
                                  [](const std::string& answer) { return answer == "1"; });
  return shared_[directory] = shared;
}

void CheckpointSaver::save(const std::filesystem::path& path, std::vector<TensorToSave> tensors,
                           const std::map<std::string, std::string>& metadata,
                           const std::shared_ptr<WorkerCollectives>& workers) {
  wait();
  auto pending = std::make_unique<Pending>();
  pending->path = resolve_link(path);
  pending->metadata = metadata;
  if (workers && sees_directory_of_chief(pending->path, *workers)) {
    pending->workers = workers;
    const std::string id = on_chief(*workers, make_save_id);
    pending->part = part_name(pending->path, id, workers->rank(), workers->size());
    tensors = share_of(workers->rank(), workers->size(), std::move(tensors));
  } else if (workers) {
    tensors = gather_at_chief(std::move(tensors), *workers, path.string());
    if (!workers->is_chief()) return;
  }
  const bool has_slices =
      std::any_of(tensors.begin(), tensors.end(), [](const auto& tensor) { return tensor.slice; });
  if (has_slices && pending->part.empty())
    pending->part = part_name(pending->path, make_save_id(), 0, 1);
  pending->tensors = std::move(tensors);
  start(std::move(pending));
}

void CheckpointSaver::start(std::unique_ptr<Pending> pending) {
  if (!options_.background) {
    pending->write();
    pending->complete();
    return;
  }
  // Variables are not updated in place while something holds their tensors (copy on write).
  for (TensorToSave& tensor : pending->tensors)
    tensor.value = copy_to_device(tensor.value, DeviceManager::get().host());
  pending_ = std::move(pending);
  pending_->thread = start_thread([&save = *pending_] { save.write(); });
}

void CheckpointSaver::poll() {
  if (!pending_) return;
  if (!pending_->workers) {
    if (pending_->is_written()) wait();
    return;
  }
  const auto all = pending_->workers->gather_bytes(pending_->is_written() ? "1" : "0", kWhat);
  if (std::all_of(all.begin(), all.end(), [](const auto& done) { return done == "1"; })) wait();
}

void CheckpointSaver::wait() {
  if (!pending_) return;
  pending_->process.expect_this("save");
  {
    std::unique_lock lock(pending_->mutex);
    if (!pending_->changed->wait_for(lock, options_.timeout, [&] { return pending_->written; }))
      fail<DeadlineExceededError>("[save] '{}' was not written within {} ms",
                                  pending_->path.string(), options_.timeout.count());
  }
  const std::unique_ptr<Pending> pending = std::move(pending_);
  pending->complete();
}

std::optional<TensorFile> load_checkpoint(const std::filesystem::path& path, bool must_exist,
                                          const std::shared_ptr<WorkerCollectives>& workers) {
  const auto load = [&]() -> std::optional<TensorFile> {
    if (!must_exist && !std::filesystem::exists(path)) return std::nullopt;
    return CheckpointReader(path).read_all();
  };
  if (!workers) return load();
  std::string bytes;
  // The chief reads and checks the file first, so that an error in it is reported once.
  if (workers->is_chief())
    if (const auto file = load()) bytes = safetensors_bytes(*file, path.string());
  bytes = workers->broadcast_bytes(bytes, kWhat);
  if (bytes.empty()) return std::nullopt;
  return parse_safetensors(bytes, path.string());
}

}  // namespace tandem
