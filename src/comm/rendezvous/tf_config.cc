#include "comm/rendezvous/tf_config.h"

#include <algorithm>
#include <array>
#include <map>

#include "comm/rendezvous/unix_path.h"
#include "comm/rendezvous/url.h"
#include "core/env.h"
#include "core/joined.h"
#include "core/json.h"
#include "core/status.h"

namespace tandem {
namespace {

constexpr std::array<const char*, 4> kTypes = {"chief", "worker", "ps", "evaluator"};
constexpr std::size_t kMaxTasks = 100'000;

template <class... Args>
[[noreturn]] void reject(fmt::format_string<Args...> format, Args&&... args) {
  throw InvalidArgumentError("[TF_CONFIG] " + fmt::format(format, std::forward<Args>(args)...));
}

bool is_type(const std::string& name) {
  return std::find(kTypes.begin(), kTypes.end(), name) != kTypes.end();
}

std::vector<std::string> parse_addresses(const std::string& type, const Json& list) {
  if (!list.is_array() || list.array().size() > kMaxTasks)
    reject("expected a list of HOST:PORT for the tasks of type '{}', got {}", type, shown(list));
  std::vector<std::string> addresses;
  for (const Json& address : list.array()) {
    if (!address.is_string() || address.text().empty())
      reject("expected HOST:PORT for task {} of type '{}', got {}", addresses.size(), type,
             shown(address));
    addresses.push_back(address.text());
  }
  return addresses;
}

void parse_cluster(const Json& cluster, TfConfig& config) {
  if (!cluster.is_object()) reject("expected an object for 'cluster', got {}", shown(cluster));
  for (const auto& [type, list] : cluster.object()) {
    auto addresses = parse_addresses(type, list);
    if (is_type(type) && addresses.empty()) continue;
    config.cluster[type] = std::move(addresses);
  }
}

// Nothing connects to an evaluator.
void check_addresses(const TfConfig& config) {
  std::map<std::string, std::string> known;
  for (const char* type : {"chief", "worker", "ps"})
    for (int index = 0; index < config.count(type); ++index) {
      const std::string& address = config.cluster.at(type)[static_cast<std::size_t>(index)];
      const std::string task = fmt::format("task {} of type '{}'", index, type);
      try {
        if (unix_path_of(address).empty()) parse_endpoint(address);
      } catch (const InvalidArgumentError&) {
        reject("expected HOST:PORT for {}, got '{}'", task, address);
      }
      const auto [other, is_new] = known.emplace(address, task);
      if (!is_new) reject("{} and {} have one address, '{}'", other->second, task, address);
    }
}

void check_cluster(const TfConfig& config) {
  for (const auto& [type, addresses] : config.cluster)
    if (!is_type(type))
      reject(
          "Disallowed task type found in cluster spec. Allowed types are {} and the cluster spec "
          "is {}.",
          joined(kTypes, ", "), shown(config.cluster));
  if (config.count("chief") > 1) reject("There must be at most one 'chief' job.");
  if (config.count("evaluator") > 1) reject("There must be at most one 'evaluator' job.");
  if (!config.cluster.empty() && config.num_workers() + config.count("evaluator") == 0)
    reject("No `worker`, `chief` or `evaluator` tasks can be found in `cluster_spec`.");
}

// Kubernetes and others write the index as a string.
int parse_index(const Json& index) {
  if (index.is_count() && index.count() < kMaxTasks) return static_cast<int>(index.count());
  if (index.is_string()) {
    const std::string& digits = index.text();
    if (!digits.empty() && digits.size() < 6 &&
        std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; }))
      return std::stoi(digits);
  }
  reject("expected a whole number for the task's index, got {}", shown(index));
}

[[noreturn]] void reject_type(const Json& type) {
  reject("Unrecognized task_type: {}, valid task types are: {}.", shown(type),
         joined(kTypes, ", "));
}

void parse_task(const Json& task, TfConfig& config) {
  if (!task.is_object()) reject("expected an object for 'task', got {}", shown(task));
  const Json *type = task.find("type"), *index = task.find("index");
  if (!type || !index)
    reject("When `cluster_spec` is given, you must also specify `task_type` and `task_id`.");
  if (!type->is_string()) reject_type(*type);
  config.type = type->text();
  config.index = parse_index(*index);
}

void check_task(const TfConfig& config) {
  if (!is_type(config.type)) reject_type(config.type);
  if (config.cluster.empty()) return;
  const int tasks = config.count(config.type);
  if (tasks == 0) {
    // An evaluator is not part of the cluster.
    if (config.type == "evaluator" && config.index == 0) return;
    reject("`task_type` '{}' not found in cluster_spec.", config.type);
  }
  if (config.index >= tasks)
    reject("The `task_id` {} exceeds the maximum id of {}, {}.", config.index, config.type,
           tasks - 1);
  if (config.index < 0) reject("expected a `task_id` of at least 0, got {}", config.index);
}

}  // namespace

int TfConfig::count(const std::string& of_type) const {
  const auto found = cluster.find(of_type);
  return found == cluster.end() ? 0 : static_cast<int>(found->second.size());
}

const std::string& TfConfig::first_address() const {
  return cluster.at(count("chief") > 0 ? "chief" : "worker").front();
}

TfConfig parse_tf_config(const std::string& text) {
  const Json root = parse_json_variable("TF_CONFIG", text);
  TfConfig config;
  if (const Json* cluster = root.find("cluster")) parse_cluster(*cluster, config);
  check_cluster(config);
  check_addresses(config);
  if (const Json* task = root.find("task"))
    parse_task(*task, config);
  else if (!config.cluster.empty())
    reject("When `cluster_spec` is given, you must also specify `task_type` and `task_id`.");
  check_task(config);
  return config.cluster.empty() ? TfConfig() : config;
}

void check_tf_config(const TfConfig& config) {
  check_cluster(config);
  check_task(config);
}

std::optional<TfConfig> tf_config_of_environment() {
  const auto text = env_string("TF_CONFIG");
  return text ? std::optional(parse_tf_config(*text)) : std::nullopt;
}

}  // namespace tandem
