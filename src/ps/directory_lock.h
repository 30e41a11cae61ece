// A directory that one process at a time uses.
#pragma once

#include <filesystem>

#include "comm/rendezvous/socket.h"

namespace tandem::ps {

// Creates the directory if it does not exist, and holds it. The death of the process releases it.
class DirectoryLock {
 public:
  // Throws FailedPreconditionError if another process holds the directory, and as
  // core/file_error.h.
  explicit DirectoryLock(const std::filesystem::path& directory);

 private:
  Socket directory_;  // any descriptor
};

}  // namespace tandem::ps
