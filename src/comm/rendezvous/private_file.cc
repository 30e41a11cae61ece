#include "comm/rendezvous/private_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "core/status.h"

namespace tandem {

void require_private(const Socket& file, const std::string& path, std::string_view advice) {
  struct stat status = {};
  if (fstat(file.descriptor(), &status) != 0)
    fail<UnavailableError>("[rendezvous] '{}': {}", path, std::strerror(errno));
  if (status.st_uid != geteuid())
    fail<FailedPreconditionError>(
        "[rendezvous] '{}' belongs to user {}, expected user {}, who runs this process: {}", path,
        status.st_uid, geteuid(), advice);
  if ((status.st_mode & 077) != 0)
    fail<FailedPreconditionError>(
        "[rendezvous] '{}' has mode {:03o}, so that other users may use it: {}", path,
        status.st_mode & 0777, advice);
}

}  // namespace tandem
