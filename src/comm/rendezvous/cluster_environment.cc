#include "comm/rendezvous/cluster_environment.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>

#include "comm/rendezvous/url.h"
#include "core/env.h"
#include "core/status.h"

namespace tandem {
namespace {

constexpr int kMaxRanks = 1'000'000;

// The variables of a launcher; null if it has none.
struct LauncherVariables {
  const char* rank;
  const char* size;
  const char* local_rank;
  const char* local_size;
};
constexpr std::array<LauncherVariables, 4> kLaunchers = {{
    {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
    {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", nullptr},
}};
const LauncherVariables& kOpenMpi = kLaunchers[1];
const LauncherVariables& kSlurm = kLaunchers[3];

std::optional<int> number(const char* name, int minimum) {
  if (name == nullptr) return std::nullopt;
  const auto value = env_int(name, minimum, kMaxRanks);
  if (!value) return std::nullopt;
  return static_cast<int>(*value);
}

std::string text(const char* name) { return env_string(name).value_or(""); }

void ask_slurm(ClusterEnvironment& result) {
  const std::string job = text("SLURM_JOB_ID");
  if (!job.empty()) result.job = fmt::format("slurm {} {}", job, text("SLURM_STEP_ID"));
  result.master =
      first_slurm_host(env_string("SLURM_STEP_NODELIST").value_or(text("SLURM_JOB_NODELIST")));
  if (const auto node = number("SLURM_NODEID", 0))
    result.local_size = slurm_tasks_of(
        env_string("SLURM_STEP_TASKS_PER_NODE").value_or(text("SLURM_TASKS_PER_NODE")), *node);
}

// Parses a number; empty if `text` is not one.
std::optional<int> digits(std::string_view text) {
  int value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || stop != text.data() + text.size() || value < 1 || value > kMaxRanks)
    return std::nullopt;
  return value;
}

std::optional<Endpoint> outside_server() {
  const auto address = env_string("TANDEM_RENDEZVOUS");
  if (!address) return std::nullopt;
  try {
    return parse_endpoint(*address);
  } catch (const InvalidArgumentError&) {
    fail<InvalidArgumentError>("[rendezvous] TANDEM_RENDEZVOUS: expected HOST:PORT, got '{}'",
                               *address);
  }
}

bool has_place(const LauncherVariables& launcher) {
  return env_string(launcher.rank) && env_string(launcher.size);
}

// A launcher inside another one, such as torchrun under Slurm, sets LOCAL_WORLD_SIZE. Without it,
// RANK and WORLD_SIZE have to be what the other launcher says. The script of a batch job is rank 0
// for Slurm, whatever it starts.
std::string find_conflict(const ClusterEnvironment& found) {
  const auto other = std::find_if(kLaunchers.begin() + 1, kLaunchers.end(), has_place);
  if (other == kLaunchers.end() || found.local_size) return "";
  const auto rank = number(other->rank, 0), size = number(other->size, 1);
  const bool is_script = &*other == &kSlurm && !env_string("SLURM_STEP_ID");
  if (size == found.size && (rank == found.rank || is_script)) return "";
  return fmt::format("RANK={} and WORLD_SIZE={}, but {}={} and {}={}", *found.rank, *found.size,
                     other->rank, *rank, other->size, *size);
}

// The message for a number out of range is PyTorch's.
std::optional<std::uint16_t> master_port() {
  const auto text = env_string("MASTER_PORT");
  const bool is_number = text && text->find_first_not_of("-0123456789") == std::string::npos;
  const auto port = is_number ? env_int("MASTER_PORT") : env_int("MASTER_PORT", 0, 65535);
  if (!port) return std::nullopt;
  if (*port < 0 || *port > 65535)
    fail<InvalidArgumentError>("[rendezvous] port must have value from 0 to 65535 but was {}.",
                               *port);
  return static_cast<std::uint16_t>(*port);
}

// Without the brackets of an IPv6 address.
std::string master_address() {
  const std::string address = text("MASTER_ADDR");
  const bool brackets = address.starts_with('[') && address.ends_with(']');
  return brackets ? address.substr(1, address.size() - 2) : address;
}

}  // namespace

void ClusterEnvironment::require_one_launcher() const {
  if (!conflict.empty())
    fail<InvalidArgumentError>(
        "[rendezvous] two launchers disagree: {}. Unset RANK and WORLD_SIZE if an earlier job has "
        "left them in the shell; otherwise set LOCAL_WORLD_SIZE, too",
        conflict);
}

ClusterEnvironment cluster_environment() {
  ClusterEnvironment result;
  const auto launcher = std::find_if(kLaunchers.begin(), kLaunchers.end(), has_place);
  const LauncherVariables& used = launcher == kLaunchers.end() ? kLaunchers.front() : *launcher;
  result.rank = number(used.rank, 0);
  result.size = number(used.size, 1);
  result.local_rank = number(used.local_rank, 0);
  result.local_size = number(used.local_size, 1);
  if (launcher == kLaunchers.begin()) result.conflict = find_conflict(result);
  if (&used == &kSlurm) ask_slurm(result);
  if (&used == &kOpenMpi) {
    const std::string job = env_string("PMIX_NAMESPACE").value_or(text("OMPI_MCA_ess_base_jobid"));
    if (!job.empty()) result.job = "mpi " + job;
  }
  const std::string address = master_address();
  if (!address.empty()) result.master = address;
  // The loopback needs no name, and other hosts cannot connect to it.
  if (result.on_one_host()) result.master = "127.0.0.1";

  const auto port = master_port();
  result.server = outside_server();
  // In that case torchrun's own store listens at MASTER_PORT, with another protocol.
  if (port && env_bool("TORCHELASTIC_USE_AGENT_STORE").value_or(false)) {
    result.job = fmt::format("torchrun {} {} {} {}", address, *port, text("TORCHELASTIC_RUN_ID"),
                             text("TORCHELASTIC_RESTART_COUNT"));
    result.ports = ports_of_job(result.job);
  } else if (port) {
    result.ports = {*port};
  } else if (!result.job.empty()) {
    result.ports = ports_of_job(result.job);
  }
  return result;
}

std::vector<std::uint16_t> ports_of_job(const std::string& job) {
  constexpr std::uint64_t kFirst = 20'000, kCount = 12'000;
  constexpr int kPorts = 8;
  std::uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (const char c : job) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  std::vector<std::uint16_t> ports;
  for (int i = 0; i < kPorts; ++i) {
    const std::uint64_t offset = (hash % kCount + static_cast<std::uint64_t>(i) * 1499) % kCount;
    ports.push_back(static_cast<std::uint16_t>(kFirst + offset));
  }
  return ports;
}

std::string first_slurm_host(const std::string& list) {
  const auto end = list.find_first_of(",[");
  if (end == std::string::npos || list[end] == ',') return list.substr(0, end);
  const auto stop = list.find_first_of(",-]", end);
  if (stop == std::string::npos) return "";
  return list.substr(0, end) + list.substr(end + 1, stop - end - 1);
}

std::optional<int> slurm_tasks_of(const std::string& tasks_per_node, int node) {
  std::string_view rest = tasks_per_node;
  while (!rest.empty()) {
    std::string_view item = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), item.size() + 1));
    std::optional<int> nodes = 1;
    if (const auto open = item.find("(x"); open != std::string_view::npos) {
      if (item.back() != ')') return std::nullopt;
      nodes = digits(item.substr(open + 2, item.size() - open - 3));
      item = item.substr(0, open);
    }
    const auto tasks = digits(item);
    if (!tasks || !nodes) return std::nullopt;
    if (node < *nodes) return tasks;
    node -= *nodes;
  }
  return std::nullopt;
}

}  // namespace tandem
