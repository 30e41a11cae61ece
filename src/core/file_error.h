// The type of error for a file that cannot be written, the same for all that write files. A header
// alone, for the command uses it as well.
#pragma once

#include <cerrno>
#include <cstring>
#include <string>

#include "tandem/errors.h"

namespace tandem {

// Throws "`message`: " and the system's text of `error`, an errno (0: an I/O error), as
// ResourceExhaustedError (disk, quota or file size used up), NotFoundError (no such directory),
// FailedPreconditionError (not allowed, read-only, a directory) or RuntimeError (others).
[[noreturn]] inline void throw_file_error(const std::string& message, int error) {
  if (error == 0) error = EIO;
  const std::string text = message + ": " + std::strerror(error);
  switch (error) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG: throw ResourceExhaustedError(text);
    case ENOENT:
    case ENOTDIR: throw NotFoundError(text);
    case EACCES:
    case EPERM:
    case EROFS:
    case EISDIR: throw FailedPreconditionError(text);
    default: throw RuntimeError(text);
  }
}

}  // namespace tandem
