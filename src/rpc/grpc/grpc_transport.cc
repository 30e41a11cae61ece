#include "rpc/grpc/grpc_transport.h"

#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <filesystem>

#include "core/file_error.h"
#include "core/module.h"
#include "core/status.h"

namespace tandem::rpc {
namespace {

void check_limits(std::size_t largest_message, std::chrono::milliseconds silence_limit) {
  // gRPC's own limits are of this type.
  if (largest_message < 1 || largest_message > INT_MAX)
    fail<InvalidArgumentError>("[rpc] expected a largest message of 1 to {} bytes, got {}", INT_MAX,
                               largest_message);
  constexpr std::chrono::milliseconds kShortest{200}, kLongest{24 * 3'600'000};
  if (silence_limit < kShortest || silence_limit > kLongest)
    fail<InvalidArgumentError>("[rpc] expected a limit of silence of {} to {} ms, got {}",
                               kShortest.count(), kLongest.count(), silence_limit.count());
}

// A user who may write there could listen in place of the server.
void check_unix_path(const std::string& path) {
  constexpr std::size_t kLongest = sizeof(sockaddr_un::sun_path) - 1;
  if (path.front() != '/' || path.size() > kLongest)
    fail<InvalidArgumentError>(
        "[rpc] expected an absolute path of at most {} bytes for a Unix socket, got '{}'", kLongest,
        path);
  const std::string directory = std::filesystem::path(path).parent_path();
  struct stat found = {};
  if (stat(directory.c_str(), &found) != 0)
    throw_file_error("[rpc] cannot find the directory of the Unix socket '" + path + "'", errno);
  if (!S_ISDIR(found.st_mode) || found.st_uid != geteuid() || (found.st_mode & 077) != 0)
    fail<FailedPreconditionError>(
        "[rpc] expected that '{}', the directory of a Unix socket, belongs to this user and is "
        "closed to others (mode 0700)",
        directory);
}

void check_positive(const char* name, int value) {
  if (value < 1) fail<InvalidArgumentError>("[rpc] expected a positive {}, got {}", name, value);
}

}  // namespace

bool has_grpc() { return can_load(kGrpcModule); }

std::unique_ptr<Server> make_grpc_server(ServerOptions options) {
  check_positive("number of threads", options.threads);
  check_positive("number of waiting calls", options.waiting_calls);
  check_positive("number of calls per connection", options.calls_per_connection);
  check_limits(options.largest_message, options.silence_limit);
  if (!options.unix_path.empty()) check_unix_path(options.unix_path);
  if (options.tls) check_identity(*options.tls, "the server's TLS identity");
  const auto make = load<Server*(ServerOptions*)>(kGrpcModule, "tandem_make_grpc_server");
  return std::unique_ptr<Server>(make(&options));
}

std::unique_ptr<Channel> make_grpc_channel(ChannelOptions options) {
  check_limits(options.largest_message, options.silence_limit);
  if (!options.unix_path.empty())
    check_unix_path(options.unix_path);
  else if (options.host.empty() || options.port == 0)
    fail<InvalidArgumentError>("[rpc] expected the host and port of task {}, got '{}' and {}",
                               options.task, options.host, options.port);
  const auto printable = [](char letter) { return letter >= ' ' && letter <= '~'; };
  if (!std::all_of(options.caller.begin(), options.caller.end(), printable))
    fail<InvalidArgumentError>("[rpc] expected a caller of printable ASCII, got '{}'",
                               options.caller);
  if (options.root_certificate)
    check_certificate(*options.root_certificate, "the root certificate");
  const auto make = load<Channel*(ChannelOptions*)>(kGrpcModule, "tandem_make_grpc_channel");
  return std::unique_ptr<Channel>(make(&options));
}

}  // namespace tandem::rpc
