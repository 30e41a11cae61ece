// The error types of failed file writes, the same for all writers. Header-only, because the
// command-line tool uses it, too.
#pragma once

#include <cerrno>
#include <cstring>
#include <string>

#include "tandem/errors.h"

namespace tandem {

// Throws "`message`: " with the system's description of `error`, an errno (0: an I/O error). The
// type is ResourceExhaustedError (disk, quota or file size limit), NotFoundError (no such
// directory), FailedPreconditionError (no permission, read-only, a directory) or RuntimeError
// (others).
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
