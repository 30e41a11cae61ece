#include "train/atomic_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "core/status.h"

namespace tandem {
namespace {

// Unique among the files that living processes write.
std::filesystem::path temporary_beside(const std::filesystem::path& path) {
  static std::atomic<unsigned> counter{0};
  return path.parent_path() /
         fmt::format(".{}.{}-{}.tmp", path.filename().string(), getpid(), counter++);
}

std::filesystem::path directory_of(const std::filesystem::path& path) {
  return path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
}

}  // namespace

AtomicFile::AtomicFile(std::filesystem::path path) : path_(std::move(path)) {
  std::error_code ignored;
  // A link stays a link; the file that it leads to is replaced.
  if (std::filesystem::is_symlink(path_, ignored)) {
    const auto target = std::filesystem::weakly_canonical(path_, ignored);
    if (!ignored) path_ = target;
  }
  if (std::filesystem::is_directory(path_, ignored))
    fail<FailedPreconditionError>("[save] cannot write '{}': it is a directory", path_.string());
  temporary_ = temporary_beside(path_);
  descriptor_ = open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (descriptor_ < 0) fail_errno("create", errno);
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
  if (fsync(descriptor_) != 0) fail_errno("sync", errno);
  const int descriptor = descriptor_;
  descriptor_ = -1;
  if (close(descriptor) != 0) fail_errno("close", errno);
  if (rename(temporary_.c_str(), path_.c_str()) != 0) fail_errno("rename", errno);
  temporary_.clear();
  // The rename is durable once the directory is; where a file system cannot sync directories, it is
  // still atomic.
  const int directory = open(directory_of(path_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory >= 0) {
    fsync(directory);
    close(directory);
  }
}

void AtomicFile::fail_errno(const char* what, int error) const {
  const std::string message =
      fmt::format("[save] cannot {} '{}': {}", what, path_.string(), std::strerror(error));
  switch (error) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG: throw ResourceExhaustedError(message + "; the file that was there is unchanged");
    case ENOENT:
    case ENOTDIR: throw NotFoundError(message);
    case EACCES:
    case EPERM:
    case EROFS:
    case EISDIR: throw FailedPreconditionError(message);
    default: throw RuntimeError(message);
  }
}

}  // namespace tandem
