// TF_CONFIG: which tasks a cluster has, and which of them this process is.
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
  // HOST:PORT of each task, by type. Empty: this process is on its own.
  std::map<std::string, std::vector<std::string>> cluster;
  std::string type = "worker";  // this task's
  int index = 0;

  // How many tasks of this type there are.
  int count(const std::string& of_type) const;
  // The tasks that train in step: the chief, if there is one, then the workers.
  int num_workers() const { return count("chief") + count("worker"); }
  // Whether this task is one of them, which it is on its own, too.
  bool trains() const { return type == "chief" || type == "worker"; }
  // This task's place among them. REQUIRES: trains().
  int rank() const { return type == "worker" ? count("chief") + index : 0; }
  // Writes what a job has one of: the chief, worker 0 where there is none, and an evaluator.
  bool is_chief() const { return !trains() || rank() == 0; }
  // Where the first of the tasks that train is. REQUIRES: num_workers() > 0.
  const std::string& first_address() const;
};

// Throws InvalidArgumentError, with TensorFlow's texts where it has one, for text that is not JSON
// of this form, and for a task that the cluster does not have.
TfConfig parse_tf_config(const std::string& text);
// That of the environment; nothing when TF_CONFIG is not set.
std::optional<TfConfig> tf_config_of_environment();

}  // namespace tandem
