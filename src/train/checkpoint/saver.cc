#include "train/checkpoint/saver.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <random>
#include <regex>
#include <thread>

#include "core/atomic_file.h"
#include "core/file_error.h"
#include "core/log.h"
#include "core/mutex.h"
#include "core/status.h"
#include "core/threads.h"
#include "device/device_manager.h"
#include "tensor/tensor_impl.h"
#include "train/checkpoint/safetensors.h"

namespace tandem {

namespace {

constexpr const char* kIndexKey = "tandem.index";  // metadata of a part: the name of its index

// Whether `name` is that of a part of `path`, of whichever save.
bool is_part_of(const std::filesystem::path& path, const std::string& name) {
  static const auto& suffix =
      *new const std::regex(R"(\.[0-9a-f]{8}-[0-9]{5,}-of-[0-9]{5,}\.safetensors)");
  const std::string prefix = path.filename().string();
  return name.starts_with(prefix) &&
         std::regex_match(name.begin() + static_cast<std::ptrdiff_t>(prefix.size()), name.end(),
                          suffix);
}

// The file that a temporary file of AtomicFile is for: ".TARGET.HOST-PROCESS-NUMBER.tmp".
std::string target_of_temporary(const std::string& name) {
  if (!name.starts_with('.') || !name.ends_with(".tmp")) return {};
  const std::string inner = name.substr(1, name.size() - 5);
  const std::size_t dot = inner.rfind('.');
  return dot == std::string::npos ? std::string() : inner.substr(0, dot);
}

// Removes the parts of `path` other than those in `keep`.
void remove_parts(const std::filesystem::path& path, const std::set<std::string>& keep) {
  const std::filesystem::path directory =
      path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
  std::error_code error;
  std::set<std::filesystem::path> parts;
  std::set<std::string> written;  // targets of temporary files
  for (auto at = std::filesystem::directory_iterator(directory, error);
       !error && at != std::filesystem::directory_iterator(); at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (is_part_of(path, name) && !keep.contains(name)) parts.insert(at->path());
    if (const std::string target = target_of_temporary(name); is_part_of(path, target))
      written.insert(target);
  }
  for (const std::string& target : written) remove_stale_files(directory / target);
  for (const std::filesystem::path& part : parts) {
    std::filesystem::remove(part, error);
    if (error) logging::warn("[save] cannot remove '{}': {}", part.string(), error.message());
  }
}

// The name of a slice in its file. The index has the tensor's.
std::string key_of(const TensorToSave& tensor) {
  return tensor.slice ? tensor.name + text_of(tensor.slice->range) : tensor.name;
}

TensorToWrite to_write(const TensorToSave& tensor, const std::string& what) {
  if (!tensor.value.defined())
    fail<InvalidArgumentError>("[save] '{}': tensor '{}' is undefined", what, tensor.name);
  return {.name = key_of(tensor),
          .dtype = tensor.value.dtype(),
          .shape = tensor.value.shape(),
          .value = [value = tensor.value] { return value; }};
}

std::vector<TensorToWrite> to_write(const std::vector<TensorToSave>& tensors,
                                    const std::string& what) {
  std::vector<TensorToWrite> result;
  std::set<std::string> names;
  for (const TensorToSave& tensor : tensors) {
    result.push_back(to_write(tensor, what));
    if (!names.insert(result.back().name).second)
      fail<InvalidArgumentError>("[save] '{}': two tensors are named '{}'", what,
                                 result.back().name);
  }
  return result;
}

}  // namespace

std::filesystem::path resolve_link(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::is_symlink(path, error)) return path;
  const std::filesystem::path target = std::filesystem::weakly_canonical(path, error);
  return error ? path : target;
}

std::string make_save_id() {
  std::random_device random;
  return fmt::format("{:08x}", static_cast<std::uint32_t>(random()));
}

std::string part_name(const std::filesystem::path& path, const std::string& save_id, int part,
                      int parts) {
  return fmt::format("{}.{}-{:05}-of-{:05}.safetensors", path.filename().string(), save_id,
                     part + 1, parts);
}

CheckpointIndex write_part(const std::filesystem::path& path, const std::string& name,
                           const std::vector<TensorToSave>& tensors) {
  const std::filesystem::path file = path.parent_path() / name;
  std::map<std::string, const TensorToSave*> by_key;
  for (const TensorToSave& tensor : tensors) by_key.emplace(key_of(tensor), &tensor);
  const auto elements = to_write(tensors, path.string());
  AtomicFile out(file);
  const WrittenFile written =
      write_safetensors(out, elements, {{kIndexKey, path.filename().string()}}, file.string());
  out.commit();
  CheckpointIndex index{.files = {{.path = name, .bytes = written.bytes}}};
  for (const WrittenTensor& record : written.tensors) {
    const TensorToSave& tensor = *by_key.at(record.entry.name);
    const Shape& shape = tensor.slice ? tensor.slice->shape : record.entry.shape;
    index.tensors
        .emplace(tensor.name, CheckpointTensor{.dtype = record.entry.dtype, .shape = shape})
        .first->second.slices.push_back({.range = tensor.slice ? tensor.slice->range : whole(shape),
                                         .begin = written.data_begin + record.entry.begin,
                                         .chunk_crcs = record.chunk_crcs});
  }
  return index;
}

void commit_index(const std::filesystem::path& path, const CheckpointIndex& index) {
  if (const auto problem = find_incomplete(index))
    fail<InvalidArgumentError>("[save] '{}': {}", path.string(), *problem);
  const std::string text = index_text(index, path.string());
  AtomicFile out(path);
  out.write(text.data(), text.size());
  out.commit();
  std::set<std::string> keep;
  for (const CheckpointFile& file : index.files) keep.insert(file.path.string());
  remove_parts(path, keep);
}

void commit_single(const std::filesystem::path& path, const std::vector<TensorToSave>& tensors,
                   const std::map<std::string, std::string>& metadata) {
  const auto elements = to_write(tensors, path.string());
  AtomicFile out(path);
  write_safetensors(out, elements, metadata, path.string());
  out.commit();
  remove_parts(path, {});
}

void remove_unused_parts(const std::filesystem::path& path) {
  const std::filesystem::path target = resolve_link(path);
  remove_stale_files(target);
  std::set<std::string> keep;
  std::error_code error;
  if (std::filesystem::exists(target, error)) {
    try {
      const CheckpointReader checkpoint(target);
      for (const CheckpointFile& file : checkpoint.files())
        keep.insert(file.path.filename().string());
    } catch (const Error&) {
      return;  // its parts may be needed to repair it
    }
  }
  remove_parts(target, keep);
}

void remove_checkpoint(const std::filesystem::path& path) {
  const std::filesystem::path target = resolve_link(path);
  std::error_code error;
  std::filesystem::remove(target, error);
  if (error)
    throw_file_error(fmt::format("[remove_checkpoint] cannot remove '{}'", path.string()),
                     error.value());
  remove_parts(target, {});
}

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
  const HeldAtFork held_at_fork{mutex};
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
