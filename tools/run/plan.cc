#include "run/plan.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <set>
#include <sstream>

#include "core/json.h"
#include "tandem/errors.h"

namespace tandem::tools {
namespace {

constexpr int kMaxRanks = 4096;

// The longest environment variable that Linux accepts, NAME=VALUE with its null (MAX_ARG_STRLEN).
constexpr std::size_t kLongestVariable = std::size_t{32} * 4096;

template <class... Args>
[[noreturn]] void reject(fmt::format_string<Args...> format, Args&&... args) {
  throw InvalidArgumentError("[run] " + fmt::format(format, std::forward<Args>(args)...));
}

std::optional<int> number(const std::string& text) {
  int value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || stop != text.data() + text.size()) return std::nullopt;
  return value;
}

bool is_endpoint(const std::string& text) {
  const auto colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0) return false;
  const auto port = number(text.substr(colon + 1));
  return port && *port > 0 && *port <= 65'535;
}

void check_count(const char* option, std::optional<int> value) {
  if (value && *value > kMaxRanks)
    reject("expected {} of at most {}, got {}", option, kMaxRanks, *value);
}

void add_host(std::vector<HostSlots>& hosts, const std::string& name, const std::string& slots,
              const std::string& source) {
  const auto count = slots.empty() ? 1 : number(slots);
  if (!count || *count < 1 || *count > kMaxRanks)
    reject("expected NAME:SLOTS with slots in [1, {}], got '{}'", kMaxRanks, source);
  // ssh would parse a name that begins with '-' as an option.
  if (name.empty() || name.front() == '-') reject("expected a host name, got '{}'", source);
  if (std::any_of(hosts.begin(), hosts.end(), [&](const auto& each) { return each.name == name; }))
    reject("host '{}' is listed twice", name);
  hosts.push_back({name, *count});
}

bool has_servers(const RunOptions& options) { return options.parameter_servers.value_or(0) > 0; }

std::vector<TfConfigTask> tasks_of(const RunOptions& options, int slots) {
  std::vector<TfConfigTask> tasks;
  const auto add = [&](const char* type, int count) {
    for (int i = 0; i < count; ++i) tasks.push_back({type, i});
  };
  const bool by_task =
      options.workers || options.parameter_servers || options.chief || options.evaluator;
  if (!by_task) {
    add("worker", options.ranks.value_or(slots));
    return tasks;
  }
  if (options.ranks)
    reject("expected either -n or --workers, --ps, --chief and --evaluator, got both");
  if (has_servers(options) && (options.workers.value_or(0) == 0 || !options.chief))
    reject("--ps requires --workers and --chief, which schedules the functions of the workers");
  if (options.workers.value_or(0) == 0 && !options.chief)
    reject("--evaluator requires --workers or --chief");
  add("chief", options.chief ? 1 : 0);
  add("worker", options.workers.value_or(0));
  add("ps", options.parameter_servers.value_or(0));
  add("evaluator", options.evaluator ? 1 : 0);
  return tasks;
}

void check(const RunOptions& options) {
  check_count("-n", options.ranks);
  check_count("--workers", options.workers);
  check_count("--ps", options.parameter_servers);
  if (!has_servers(options) && (options.max_restarts || options.snapshots || options.no_tls))
    reject("--max-restarts, --snapshots and --no-tls require --ps");
  if (options.bind != "core" && options.bind != "none")
    reject("expected --bind none or core, got '{}'", options.bind);
  if (!(options.grace >= 0.0) || options.grace > 86'400.0)
    reject("expected --grace in [0, 86400] seconds, got {}", options.grace);
  if (!(options.start_timeout > 0.0) || options.start_timeout > 86'400.0)
    reject("expected --start-timeout in (0, 86400] seconds, got {}", options.start_timeout);
  if (options.hosts && options.host_file) reject("expected either --hosts or --hostfile, got both");
  if (!options.rendezvous.empty() && !is_endpoint(options.rendezvous))
    reject("expected --rendezvous HOST:PORT, got '{}'", options.rendezvous);
  if (options.ssh.find_first_not_of(' ') == std::string::npos)
    reject("expected a command for --ssh, got an empty string");
  if (options.program.empty())
    reject("expected a program after --: tandem run -n 2 -- PROGRAM [ARGUMENTS]");
}

}  // namespace

std::vector<HostSlots> parse_hosts(const std::string& text) {
  std::vector<HostSlots> hosts;
  std::istringstream items(text);
  for (std::string item; std::getline(items, item, ',');) {
    const auto colon = item.rfind(':');
    if (colon != std::string::npos && colon + 1 == item.size())
      reject("expected NAME:SLOTS, got '{}'", item);
    add_host(hosts, item.substr(0, colon), colon == std::string::npos ? "" : item.substr(colon + 1),
             item);
  }
  if (hosts.empty()) reject("expected --hosts NAME:SLOTS,..., got '{}'", text);
  return hosts;
}

// Lines are NAME, NAME:SLOTS or NAME slots=SLOTS; # begins a comment.
std::vector<HostSlots> read_host_file(const std::string& path) {
  std::ifstream in(path);
  if (!in || std::filesystem::is_directory(path))
    throw NotFoundError(fmt::format("[run] cannot read the host file '{}'", path));
  std::vector<HostSlots> hosts;
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line.substr(0, line.find('#')));
    std::string name, slots, more;
    if (!(words >> name)) continue;
    words >> slots >> more;
    if (slots.rfind("slots=", 0) == 0) {
      slots.erase(0, 6);
    } else if (!slots.empty()) {
      reject("'{}': expected NAME slots=SLOTS, got '{}'", path, line);
    } else if (const auto colon = name.rfind(':'); colon != std::string::npos) {
      slots = name.substr(colon + 1);
      name.resize(colon);
    }
    if (!more.empty()) reject("'{}': expected NAME slots=SLOTS, got '{}'", path, line);
    add_host(hosts, name, slots, line);
  }
  if (hosts.empty()) reject("expected hosts in the host file '{}', got none", path);
  return hosts;
}

JobPlan make_job_plan(const RunOptions& options) {
  check(options);
  JobPlan plan;
  if (options.hosts) plan.hosts = parse_hosts(*options.hosts);
  if (options.host_file) plan.hosts = read_host_file(*options.host_file);
  const int slots = std::accumulate(plan.hosts.begin(), plan.hosts.end(), 0,
                                    [](int sum, const auto& host) { return sum + host.slots; });
  const std::vector<TfConfigTask> tasks = tasks_of(options, plan.hosts.empty() ? 1 : slots);
  const int count = static_cast<int>(tasks.size());
  if (plan.hosts.empty()) {
    plan.hosts = {{"localhost", count}};
  } else if (count > slots) {
    reject("expected at least {} slots for as many ranks, the hosts have {}", count, slots);
  }
  for (const HostSlots& host : plan.hosts)
    if (!plan.one_host() && host.name == "localhost")
      reject("expected host names that all hosts can reach, got 'localhost' beside other hosts");
  plan.servers = has_servers(options);
  plan.alike = options.ranks || (!options.workers && !options.chief);
  for (const TfConfigTask& task : tasks) {
    PlannedRank rank = {.rank = static_cast<int>(plan.ranks.size()), .task = task};
    rank.serves = plan.servers && (task.type == "ps" || task.type == "worker");
    rank.label =
        plan.alike ? std::to_string(rank.rank) : fmt::format("{}:{}", task.type, task.index);
    plan.ranks.push_back(rank);
  }
  // Fills host after host, so that adjacent ranks are on one host.
  std::size_t next = 0;
  for (std::size_t host = 0; host < plan.hosts.size(); ++host) {
    const std::size_t here =
        std::min(plan.ranks.size() - next, static_cast<std::size_t>(plan.hosts[host].slots));
    for (std::size_t i = 0; i < here; ++i, ++next) {
      plan.ranks[next].host = host;
      plan.ranks[next].local_rank = static_cast<int>(i);
      plan.ranks[next].local_size = static_cast<int>(here);
    }
  }
  plan.hosts.resize(plan.ranks.back().host + 1);  // drops hosts without ranks
  return plan;
}

bool is_this_host(const std::string& name) {
  std::array<char, 256> own = {};
  if (gethostname(own.data(), own.size() - 1) != 0) own[0] = '\0';
  return name == "localhost" || name == "127.0.0.1" || name == "::1" || name == own.data();
}

Environment environment_of(const JobPlan& plan, const PlannedRank& rank, const Addresses& addresses,
                           const std::string& token) {
  Json cluster;
  for (const PlannedRank& each : plan.ranks)
    cluster[each.task.type].push_back(addresses.tasks[static_cast<std::size_t>(each.rank)]);
  const Json config = {{"cluster", cluster},
                       {"task", {{"type", rank.task.type}, {"index", rank.task.index}}}};
  Environment result = {{"RANK", std::to_string(rank.rank)},
                        {"LOCAL_RANK", std::to_string(rank.local_rank)},
                        {"WORLD_SIZE", std::to_string(plan.ranks.size())},
                        {"LOCAL_WORLD_SIZE", std::to_string(rank.local_size)},
                        {"MASTER_ADDR", addresses.hosts.front()},
                        {"MASTER_PORT", std::to_string(addresses.master_port)},
                        {"TANDEM_RENDEZVOUS", addresses.rendezvous[rank.host]},
                        {"TANDEM_JOB_TOKEN", token}};
  std::string text = config.dump();
  const std::size_t size = std::string_view("TF_CONFIG=").size() + text.size() + 1;
  if (size <= kLongestVariable)
    result.emplace_back("TF_CONFIG", std::move(text));
  else if (!plan.alike)
    throw ResourceExhaustedError(
        fmt::format("[run] TF_CONFIG with the addresses of {} tasks takes {} bytes, but a "
                    "variable can hold {}; use shorter host names or fewer tasks",
                    plan.ranks.size(), size, kLongestVariable));
  return result;
}

Environment user_environment(const RunOptions& options) {
  Environment result;
  for (const std::string& item : options.environment) {
    const auto equals = item.find('=');
    const std::string name = item.substr(0, equals);
    if (name.empty()) reject("expected --env NAME or NAME=VALUE, got '{}'", item);
    if (equals != std::string::npos) {
      result.emplace_back(name, item.substr(equals + 1));
    } else if (const char* value = std::getenv(name.c_str())) {
      result.emplace_back(name, value);
    } else {
      throw NotFoundError(fmt::format("[run] --env {}: the variable is not set", name));
    }
  }
  return result;
}

}  // namespace tandem::tools
