// TPUs that environment variables name.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace tandem::distribute {

struct TpuNode {
  std::string name;           // "local", addresses, or a name of the Cloud TPU API
  std::string zone, project;  // may be empty
};

// The node that KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS, TPU_NAME or TPU_CONFIG names, in this order.
// Throws as parse_tpu_config() does.
std::optional<TpuNode> tpu_node_of_environment();

// {"tpu_node_name": "n", "project": "p", "zone": "z"}; empty for {}. Throws InvalidArgumentError
// for text of another form.
std::optional<TpuNode> parse_tpu_config(const std::string& text);

// Whether the name of a TPU is a list of addresses.
bool is_tpu_endpoints(const std::string& tpu);
// "grpc://HOST:PORT,..." as HOST:PORT each. Throws InvalidArgumentError for another form.
std::vector<std::string> parse_tpu_endpoints(const std::string& list);

}  // namespace tandem::distribute
