#include "core/atomic_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <system_error>

#include "core/file_error.h"
#include "core/status.h"

namespace tandem {
namespace {

// The prefix of this host's temporary files for `path`. It contains a hash, because host names may
// be longer than file names.
std::string prefix_of(const std::filesystem::path& path) {
  std::array<char, 256> host = {};
  gethostname(host.data(), host.size() - 1);
  const auto hash = crc32_z(0, reinterpret_cast<const Bytef*>(host.data()), host.size());
  return fmt::format(".{}.{:08x}-", path.filename().string(), hash);
}

// Unique among files of processes in the same pid namespace.
std::filesystem::path temporary_beside(const std::filesystem::path& path) {
  static std::atomic<unsigned> counter{0};
  return path.parent_path() / fmt::format("{}{}-{}.tmp", prefix_of(path), getpid(), counter++);
}

std::filesystem::path directory_of(const std::filesystem::path& path) {
  return path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
}

// False if the file's writer is running or the file system has no locks.
bool lock(int descriptor, int mode) {
  int result = 0;
  do {
    result = flock(descriptor, mode);
  } while (result != 0 && errno == EINTR);
  return result == 0;
}

void remove_if_stale(const std::filesystem::path& file) {
  const int descriptor = open(file.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  if (descriptor < 0) return;
  if (lock(descriptor, LOCK_EX | LOCK_NB)) unlink(file.c_str());
  close(descriptor);
}

}  // namespace

void remove_stale_files(const std::filesystem::path& path) {
  const std::string prefix = prefix_of(path);
  std::error_code error;
  for (auto at = std::filesystem::directory_iterator(directory_of(path), error);
       !error && at != std::filesystem::directory_iterator(); at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (name.starts_with(prefix) && name.ends_with(".tmp")) remove_if_stale(at->path());
  }
}

AtomicFile::AtomicFile(std::filesystem::path path, std::string what)
    : path_(std::move(path)), what_(std::move(what)) {
  std::error_code ignored;
  // Keeps a symbolic link, and replaces its target.
  if (std::filesystem::is_symlink(path_, ignored)) {
    const auto target = std::filesystem::weakly_canonical(path_, ignored);
    if (!ignored) path_ = target;
  }
  if (std::filesystem::is_directory(path_, ignored))
    fail<FailedPreconditionError>("[{}] cannot write '{}': it is a directory", what_,
                                  path_.string());
  in_place_ = std::filesystem::is_other(path_, ignored);
  if (in_place_) {
    descriptor_ = open(path_.c_str(), O_WRONLY | O_CLOEXEC);
    if (descriptor_ < 0) fail_errno("open", errno);
    return;
  }
  remove_stale_files(path_);
  create();
}

void AtomicFile::create() {
  while (true) {
    temporary_ = temporary_beside(path_);
    descriptor_ = open(temporary_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor_ < 0) {
      if (errno == EEXIST) continue;
      const int error = errno;
      temporary_.clear();
      fail_errno("create", error);
    }
    lock(descriptor_, LOCK_EX);
    // Before it was locked, another process may have removed it as stale.
    struct stat status = {};
    if (fstat(descriptor_, &status) != 0 || status.st_nlink > 0) return;
    close(descriptor_);
  }
}

AtomicFile::~AtomicFile() {
  if (descriptor_ >= 0) close(descriptor_);
  if (!temporary_.empty()) unlink(temporary_.c_str());
}

void AtomicFile::write(const void* data, std::size_t bytes) {
  const char* next = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t written = ::write(descriptor_, next, bytes);
    if (written < 0) {
      if (errno == EINTR) continue;
      fail_errno("write", errno);
    }
    next += written;
    bytes -= static_cast<std::size_t>(written);
  }
}

void AtomicFile::overwrite(std::size_t offset, const void* data, std::size_t bytes) {
  const char* next = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t written = pwrite(descriptor_, next, bytes, static_cast<off_t>(offset));
    if (written < 0) {
      if (errno == EINTR) continue;
      fail_errno("write", errno);
    }
    next += written;
    offset += static_cast<std::size_t>(written);
    bytes -= static_cast<std::size_t>(written);
  }
}

void AtomicFile::commit() {
  // Devices and pipes cannot be synced.
  if (fsync(descriptor_) != 0 && !(in_place_ && (errno == EINVAL || errno == EROFS)))
    fail_errno("sync", errno);
  if (!in_place_) {
    // Rename before closing, which releases the lock.
    if (rename(temporary_.c_str(), path_.c_str()) != 0) fail_errno("rename", errno);
    temporary_.clear();
    // The rename is durable once the directory is synced. If the file system cannot sync
    // directories, it is still atomic.
    const int directory = open(directory_of(path_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (directory >= 0) {
      fsync(directory);
      close(directory);
    }
  }
  close(descriptor_);
  descriptor_ = -1;
}

void AtomicFile::fail_errno(const char* action, int error) const {
  const std::string message = fmt::format("[{}] cannot {} '{}'", what_, action, path_.string());
  try {
    throw_file_error(message, error);
  } catch (const ResourceExhaustedError& full) {
    if (in_place_) throw;
    throw ResourceExhaustedError(
        fmt::format("{}; the file that was there is unchanged", full.what()));
  }
}

}  // namespace tandem
