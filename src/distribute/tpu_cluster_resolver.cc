#include "core/status.h"
#include "device/device_manager.h"
#include "distribute/tpu_environment.h"
#include "distribute/tpu_system.h"
#include "tandem/tpu_system.h"

namespace tandem::distribute {
namespace {

constexpr const char* kResolver = "TPUClusterResolver";

void check_coordinator(const TPUClusterResolverOptions& options) {
  if (options.coordinator_name.empty() != options.coordinator_address.empty())
    fail<InvalidArgumentError>(
        "[{}] expected both coordinator_name and coordinator_address or neither, got '{}' and '{}'",
        kResolver, options.coordinator_name, options.coordinator_address);
  if (options.job_name.empty() || options.job_name == options.coordinator_name)
    fail<InvalidArgumentError>(
        "[{}] expected a job_name that is not empty and not the coordinator's, got '{}'", kResolver,
        options.job_name);
}

}  // namespace

TPUClusterResolver::TPUClusterResolver(const std::string& tpu,
                                       const TPUClusterResolverOptions& options)
    : tpu_(tpu), options_(options) {
  check_coordinator(options_);
  if (tpu_.empty()) {
    const std::optional<TpuNode> node = tpu_node_of_environment();
    if (!node)
      fail<InvalidArgumentError>("[{}] Please provide a TPU Name to connect to.", kResolver);
    tpu_ = node->name;
    if (options_.zone.empty()) options_.zone = node->zone;
    if (options_.project.empty()) options_.project = node->project;
  }
  if (is_tpu_endpoints(tpu_)) parse_tpu_endpoints(tpu_);  // throws
}

TPUClusterResolver TPUClusterResolver::connect(const std::string& tpu,
                                               const TPUClusterResolverOptions& options) {
  TPUClusterResolver resolver(tpu, options);
  tpu::initialize_tpu_system(resolver);
  return resolver;
}

std::map<std::string, std::vector<std::string>> TPUClusterResolver::cluster_spec() const {
  if (is_local()) return {};
  if (!is_tpu_endpoints(tpu_))
    fail<InvalidArgumentError>(
        "[{}] Could not lookup TPU metadata from name '{}'. Please doublecheck the tpu argument in "
        "the TPUClusterResolver constructor. Exception: Tandem does not ask the Cloud TPU API "
        "(project '{}', zone '{}'): give the addresses, grpc://HOST:PORT, or \"local\"",
        kResolver, tpu_, project(), zone());
  std::map<std::string, std::vector<std::string>> cluster = {
      {task_type(), parse_tpu_endpoints(tpu_)}};
  if (!options_.coordinator_name.empty())
    cluster[options_.coordinator_name] = {options_.coordinator_address};
  return cluster;
}

std::string TPUClusterResolver::master(const std::string& task_type, int task_id) const {
  if (is_local()) return "";
  const auto cluster = cluster_spec();
  const auto job = cluster.find(task_type);
  if (job == cluster.end())
    fail<InvalidArgumentError>("[{}] No such job in cluster: '{}'", kResolver, task_type);
  if (task_id < 0 || static_cast<std::size_t>(task_id) >= job->second.size())
    fail<InvalidArgumentError>("[{}] No task with index {} in job '{}'", kResolver, task_id,
                               task_type);
  return "grpc://" + job->second[static_cast<std::size_t>(task_id)];
}

std::map<std::string, int> TPUClusterResolver::num_accelerators() const {
  require_local(*this, kResolver);
  const auto tpus = DeviceManager::get().devices(DeviceType::kTpu, kResolver);
  return {{"TPU", static_cast<int>(tpus.size())}};
}

}  // namespace tandem::distribute
