#include "ps/directory_lock.h"

#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>
#include <system_error>

#include "core/file_error.h"
#include "core/status.h"

namespace tandem::ps {

DirectoryLock::DirectoryLock(const std::filesystem::path& directory) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) throw_file_error("[Server] cannot create '" + directory.string() + "'", error.value());
  directory_ = Socket(open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!directory_.is_open())
    throw_file_error("[Server] cannot open '" + directory.string() + "'", errno);
  if (flock(directory_.descriptor(), LOCK_EX | LOCK_NB) != 0)
    fail<FailedPreconditionError>("[Server] the journal in '{}' is in use by another process",
                                  directory.string());
}

}  // namespace tandem::ps
