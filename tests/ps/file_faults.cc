#include "ps/file_faults.h"

#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

namespace tandem::ps::testing {

bool FileFaults::fails(const std::function<void()>& part) {
  if (fault == Fault::kNone || ++steps != steps_until) return false;
  if (fault == Fault::kError) return true;
  part();
  kill(getpid(), SIGKILL);
  for (;;) pause();
}

FileFaults& file_faults() {
  static FileFaults instance;
  return instance;
}

}  // namespace tandem::ps::testing

extern "C" ssize_t write(int file, const void* bytes, std::size_t count) {
  auto& faults = tandem::ps::testing::file_faults();
  if (faults.before_write) faults.before_write();
  if (faults.fails([&] { syscall(SYS_write, file, bytes, count / 2); })) {
    errno = ENOSPC;
    return -1;
  }
  return syscall(SYS_write, file, bytes, count);
}
extern "C" int fsync(int file) {
  if (tandem::ps::testing::file_faults().fails()) {
    errno = EIO;
    return -1;
  }
  return static_cast<int>(syscall(SYS_fsync, file));
}
extern "C" int rename(const char* from, const char* to) noexcept {
  auto& faults = tandem::ps::testing::file_faults();
  if (faults.before_rename) faults.before_rename();
  if (faults.fails()) {
    errno = EIO;
    return -1;
  }
  return static_cast<int>(syscall(SYS_rename, from, to));
}
extern "C" int remove(const char* path) noexcept {
  if (tandem::ps::testing::file_faults().fails()) {
    errno = EIO;
    return -1;
  }
  const int result = static_cast<int>(syscall(SYS_unlink, path));
  return result != 0 && errno == EISDIR ? static_cast<int>(syscall(SYS_rmdir, path)) : result;
}
