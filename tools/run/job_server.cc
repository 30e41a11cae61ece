#include "run/job_server.h"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>

#include "run/descriptor.h"

namespace tandem::tools {
namespace {

std::string new_token() {
  std::array<unsigned char, 16> bytes = {};
  if (getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
    throw UnavailableError("[run] cannot get random numbers from the system");
  std::string token;
  for (const unsigned char byte : bytes) token += fmt::format("{:02x}", byte);
  return token;
}

std::string token_of_environment() {
  const char* token = std::getenv("TANDEM_JOB_TOKEN");
  if (token == nullptr || *token == '\0')
    throw FailedPreconditionError(
        "[run] --rendezvous: set the environment variable TANDEM_JOB_TOKEN to the secret of the "
        "server");
  return token;
}

bool is_local(const JobPlan& plan) {
  return std::all_of(plan.hosts.begin(), plan.hosts.end(),
                     [](const HostSlots& host) { return is_this_host(host.name); });
}

// Descriptors of the launcher without its server: a reserved port and two pipes per rank on this
// machine, two output files per rank, two pipes per host.
std::int64_t launcher_descriptors(const RunOptions& options, const JobPlan& plan) {
  constexpr std::int64_t kOwn = 32;
  std::int64_t count = kOwn;
  for (const PlannedRank& rank : plan.ranks)
    count += (is_this_host(plan.hosts[rank.host].name) ? 3 : 0) + (options.output.empty() ? 0 : 2);
  return count + 2 * static_cast<std::int64_t>(plan.hosts.size());
}

// This machine's address on the route to a host; sends nothing. Empty if the host's name cannot be
// resolved, because only ssh's configuration may know it.
std::string address_towards(const std::string& host) {
  addrinfo hints = {};
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), "9", &hints, &found) != 0) return "";
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, freeaddrinfo);
  const FileDescriptor socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_in own = {};
  socklen_t size = sizeof(own);
  auto* generic = reinterpret_cast<sockaddr*>(&own);
  std::array<char, NI_MAXHOST> text = {};
  if (connect(socket.number(), found->ai_addr, found->ai_addrlen) != 0 ||
      getsockname(socket.number(), generic, &size) != 0 ||
      getnameinfo(generic, size, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) != 0)
    return "";
  return text.data();
}

std::string own_name() {
  std::array<char, 256> name = {};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "localhost";
}

}  // namespace

JobServer::JobServer(const RunOptions& options, const JobPlan& plan)
    : token_(options.rendezvous.empty() ? new_token() : token_of_environment()),
      external_(options.rendezvous) {
  if (external_.empty())
    server_.emplace(
        comm::RendezvousServerOptions{.address = is_local(plan) ? "127.0.0.1" : "0.0.0.0",
                                      .ranks = static_cast<int>(plan.ranks.size()),
                                      .token = token_,
                                      .other_descriptors = launcher_descriptors(options, plan)});
}

std::string JobServer::address_for(const std::string& host) const {
  if (!server_) return external_;
  std::string address = is_this_host(host) ? "127.0.0.1" : address_towards(host);
  if (address.empty()) address = own_name();
  return fmt::format("{}:{}", address, server_->port());
}

void JobServer::rank_ended(int rank) {
  if (server_) server_->rank_ended(rank);
}

}  // namespace tandem::tools
