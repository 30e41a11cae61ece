#include "rpc/grpc/grpc_transport.h"

#include <algorithm>
#include <climits>

#include "core/env.h"
#include "core/module.h"
#include "core/status.h"

namespace tandem::rpc {
namespace {

constexpr Module module_with(const char* factory) {
  return {.backend = "grpc",
          .file = "libtandem_grpc.so",
          .factory = factory,
          .library = "libgrpc++-dev",
          .runtime = "libgrpc++1.51"};
}
constexpr Module kServers = module_with("tandem_make_grpc_server");
constexpr Module kChannels = module_with("tandem_make_grpc_channel");

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

void check_positive(const char* name, int value) {
  if (value < 1) fail<InvalidArgumentError>("[rpc] expected a positive {}, got {}", name, value);
}

}  // namespace

bool has_grpc() { return can_load(kServers); }

std::unique_ptr<Server> make_grpc_server(ServerOptions options) {
  check_positive("number of threads", options.threads);
  check_positive("number of waiting calls", options.waiting_calls);
  check_positive("number of calls per connection", options.calls_per_connection);
  check_limits(options.largest_message, options.silence_limit);
  if (options.tls) check_identity(*options.tls, "the server's TLS identity");
  using Factory = Server* (*)(ServerOptions*);
  const auto factory = reinterpret_cast<Factory>(load_factory(kServers));
  return std::unique_ptr<Server>(factory(&options));
}

std::unique_ptr<Channel> make_grpc_channel(ChannelOptions options) {
  check_limits(options.largest_message, options.silence_limit);
  if (options.host.empty() || options.port == 0)
    fail<InvalidArgumentError>("[rpc] expected the host and port of task {}, got '{}' and {}",
                               options.task, options.host, options.port);
  const auto printable = [](char letter) { return letter >= ' ' && letter <= '~'; };
  if (!std::all_of(options.caller.begin(), options.caller.end(), printable))
    fail<InvalidArgumentError>("[rpc] expected a caller of printable ASCII, got '{}'",
                               options.caller);
  if (!env_bool("TANDEM_RPC_LOCAL_TRANSPORT").value_or(true)) options.local_transport = false;
  if (options.root_certificate)
    check_certificate(*options.root_certificate, "the root certificate");
  using Factory = Channel* (*)(ChannelOptions*);
  const auto factory = reinterpret_cast<Factory>(load_factory(kChannels));
  return std::unique_ptr<Channel>(factory(&options));
}

}  // namespace tandem::rpc
