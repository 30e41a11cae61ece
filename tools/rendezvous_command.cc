// `tandem rendezvous`: a rendezvous server that runs outside of the ranks, on any host.
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cmath>
#include <iostream>
#include <memory>

#include "commands.h"
#include "programs.h"
#include "tandem/rendezvous.h"
#include "workload.h"

namespace tandem::tools {
namespace {

struct Options {
  int ranks = 1;
  std::string address = "127.0.0.1";
  int port = 0;
  double join_timeout = 1800.0;  // seconds
};

// The host name or address by which ranks reach a server that listens on `address`.
std::string reachable(const std::string& address) {
  std::array<char, 256> name = {};
  const bool everywhere = address == "0.0.0.0" || address == "::";
  if (everywhere && gethostname(name.data(), name.size() - 1) == 0) return name.data();
  return address.find(':') == std::string::npos ? address : fmt::format("[{}]", address);
}

void serve(const Options& options) {
  if (options.port > 65'535)
    throw InvalidArgumentError(
        fmt::format("[rendezvous] expected --port in [0, 65535], got {}", options.port));
  if (!(options.join_timeout > 0.0) || options.join_timeout > 86'400.0)
    throw InvalidArgumentError(
        fmt::format("[rendezvous] expected --join-timeout in (0, 86400] seconds, got {}",
                    options.join_timeout));
  comm::RendezvousServer server({.address = options.address,
                                 .port = static_cast<std::uint16_t>(options.port),
                                 .ranks = options.ranks});
  std::cout << fmt::format("TANDEM_RENDEZVOUS={}:{}", reachable(options.address), server.port())
            << std::endl;
  server.wait(
      std::chrono::milliseconds(static_cast<std::int64_t>(std::ceil(options.join_timeout * 1e3))));
}

}  // namespace

void add_rendezvous_command(Command program) {
  const auto options = std::make_shared<Options>();
  Command command = program.command(kRendezvous.command, kRendezvous.help);
  command.option("-n,--ranks", options->ranks, "Number of ranks of the job").required().at_least(1);
  command.option("--address", options->address,
                 "Address to listen on: loopback for ranks on this machine only, 0.0.0.0 for all "
                 "interfaces (requires a secret in TANDEM_JOB_TOKEN)");
  command.option("--port", options->port, "Port to listen on; 0 chooses a free port").at_least(0);
  command.option("--join-timeout", options->join_timeout, "Seconds to wait for all ranks to join");
  command.runs([options] { serve(*options); });
}

}  // namespace tandem::tools
