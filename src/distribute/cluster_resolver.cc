#include "tandem/cluster_resolver.h"
#include "comm/rendezvous/tf_config.h"

namespace tandem::distribute {
namespace {

SimpleClusterResolver resolver_of_environment() {
  const TfConfig config = tf_config_of_environment().value_or(TfConfig());
  if (config.cluster.empty()) return {{}, "", 0};
  return {config.cluster, config.type, config.index};
}

}  // namespace

ClusterResolver::ClusterResolver(ClusterSpec cluster_spec, std::string task_type, int task_id)
    : cluster_spec_(std::move(cluster_spec)), task_type_(std::move(task_type)), task_id_(task_id) {
  if (cluster_spec_.empty()) return;
  check_tf_config({.cluster = cluster_spec_, .type = task_type_, .index = task_id_});
}

TFConfigClusterResolver::TFConfigClusterResolver() : ClusterResolver(resolver_of_environment()) {}

}  // namespace tandem::distribute
