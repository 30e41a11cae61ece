// TF_CONFIG: the tasks of a cluster, and this process's task.
//
//   {"cluster": {"chief": ["h0:1"], "worker": ["h1:1", "h2:1"], "ps": [...],
//                "evaluator": ["h3:1"]},
//    "task": {"type": "worker", "index": 0}}
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace tandem {

struct TfConfig {
  // HOST:PORT of each task, by type. Empty: there is no cluster.
  std::map<std::string, std::vector<std::string>> cluster;
  std::string type = "worker";  // this task's
  int index = 0;

  // The number of tasks of this type.
  int count(const std::string& of_type) const;
  // The number of tasks that train together: the chief, if there is one, and the workers.
  int num_workers() const { return count("chief") + count("worker"); }
  // Whether this task is one of them. True without a cluster.
  bool trains() const { return type == "chief" || type == "worker"; }
  // This task's rank among them. REQUIRES: trains().
  int rank() const { return type == "worker" ? count("chief") + index : 0; }
  // Whether this task writes checkpoints and logs: the chief (worker 0 if there is none), or an
  // evaluator.
  bool is_chief() const { return !trains() || rank() == 0; }
  // The address of the first task that trains. REQUIRES: num_workers() > 0.
  const std::string& first_address() const;
};

// Throws InvalidArgumentError, with TensorFlow's messages where it has one, for text that is not
// JSON of this form and for a task that is not in the cluster.
TfConfig parse_tf_config(const std::string& text);
// Throws InvalidArgumentError, with the same messages, for a cluster with other types or numbers of
// tasks, and for a task that is not in the cluster.
void check_tf_config(const TfConfig& config);
// Parses the environment variable; empty if TF_CONFIG is not set.
std::optional<TfConfig> tf_config_of_environment();

}  // namespace tandem
