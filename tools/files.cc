#include "files.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <string_view>

#include "core/file_error.h"

namespace tandem::tools {
namespace {

// Returns 0 or errno.
int write_to(const std::string& path, std::string_view text) {
  const int descriptor = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (descriptor < 0) return errno;
  int error = 0;
  while (!text.empty() && error == 0) {
    const ssize_t count = write(descriptor, text.data(), text.size());
    if (count >= 0) {
      text.remove_prefix(static_cast<std::size_t>(count));
    } else if (errno != EINTR) {
      error = errno;
    }
  }
  if (close(descriptor) != 0 && error == 0) error = errno;
  return error;
}

}  // namespace

void replace_file(const std::string& path, const std::string& text, const std::string& message) {
  std::error_code ignored;
  const bool in_place = std::filesystem::is_other(path, ignored);
  const std::string target = in_place ? path : path + ".part";
  int error = write_to(target, text);
  if (error == 0 && !in_place && rename(target.c_str(), path.c_str()) != 0) error = errno;
  if (error == 0) return;
  if (!in_place) unlink(target.c_str());
  throw_file_error(message, error);
}

}  // namespace tandem::tools
