#include "comm/rendezvous/local_secret.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "comm/rendezvous/handshake.h"
#include "comm/rendezvous/private_file.h"
#include "comm/rendezvous/socket.h"
#include "core/status.h"

namespace tandem {
namespace {

constexpr std::size_t kSecretBytes = 32;
constexpr const char* kAdvice =
    "remove it, or set the environment variable TANDEM_JOB_TOKEN to the same secret for all ranks";

[[noreturn]] void fail_on_secret(const std::string& path, const char* what) {
  fail<UnavailableError>("[rendezvous] '{}': {}: {}; {}", path, what, std::strerror(errno),
                         kAdvice);
}

Socket open_folder(const std::string& path) {
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST)
    fail_on_secret(path, "cannot make the folder");
  Socket folder(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!folder.is_open()) fail_on_secret(path, "cannot open the folder");
  require_private(folder, path, kAdvice);
  return folder;
}

// Writes the file under a temporary name, so that no process reads a part of it.
void make_secret(const Socket& folder, const std::string& path) {
  const std::string bytes = random_bytes(kSecretBytes);
  const std::string draft = fmt::format("secret.{}.{}", getpid(), fmt::ptr(&bytes));
  const Socket file(openat(folder.descriptor(), draft.c_str(),
                           O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file.is_open()) fail_on_secret(path, "cannot make a file there");
  const bool written =
      write(file.descriptor(), bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size());
  const bool there = written && (linkat(folder.descriptor(), draft.c_str(), folder.descriptor(),
                                        "secret", 0) == 0 ||
                                 errno == EEXIST);
  const int error = errno;
  unlinkat(folder.descriptor(), draft.c_str(), 0);
  errno = error;
  if (!there) fail_on_secret(path, "cannot write the secret");
}

}  // namespace

std::string local_secret() { return local_secret_in(fmt::format("/tmp/tandem-{}", geteuid())); }

std::string local_secret_in(const std::string& path) {
  const Socket folder = open_folder(path);
  const auto open_secret = [&] {
    return Socket(openat(folder.descriptor(), "secret", O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  };
  Socket file = open_secret();
  if (!file.is_open() && errno == ENOENT) {
    make_secret(folder, path);
    file = open_secret();
  }
  if (!file.is_open()) fail_on_secret(path + "/secret", "cannot open it");
  require_private(file, path + "/secret", kAdvice);
  std::array<char, kSecretBytes> bytes = {};
  if (read(file.descriptor(), bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size()))
    fail<DataLossError>("[rendezvous] '{}/secret' does not hold {} bytes; {}", path, kSecretBytes,
                        kAdvice);
  return {bytes.data(), bytes.size()};
}

std::string job_secret(const std::string& host, const std::string& token) {
  if (!token.empty()) return token;
  return is_loopback(host) ? local_secret() : "";
}

void require_token(const std::string& address, const std::string& token, const char* who) {
  if (token.empty() && !is_loopback(address))
    fail<FailedPreconditionError>(
        "[rendezvous] {} would listen at {}, which other machines can reach: set the environment "
        "variable TANDEM_JOB_TOKEN to the same secret for all ranks",
        who, address);
}

}  // namespace tandem
