/// @file
/// The tasks of a cluster. As tf.distribute.cluster_resolver.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace tandem::distribute {

/// The address HOST:PORT of each task of a cluster, by type: "chief", "worker", "ps", "evaluator".
/// IPv6 addresses are in brackets. Tasks of one host may have unix:/PATH instead, the path of a
/// socket in a directory that only their user may enter. As tf.train.ClusterSpec.
using ClusterSpec = std::map<std::string, std::vector<std::string>>;

/// A cluster, and this process's task in it. A value. As
/// tf.distribute.cluster_resolver.ClusterResolver.
class ClusterResolver {
 public:
  /// The addresses of all tasks. Empty if there is no cluster.
  const ClusterSpec& cluster_spec() const { return cluster_spec_; }
  /// The type of this process's task. Empty if there is no cluster.
  const std::string& task_type() const { return task_type_; }
  /// The index of this process's task among those of its type.
  int task_id() const { return task_id_; }

 protected:
  /// Throws InvalidArgumentError, with TensorFlow's messages where it has one: for a type of task
  /// that does not exist, for more than one chief or evaluator, for a cluster of servers alone, and
  /// for a task that is not in the cluster. An evaluator need not be in it.
  ClusterResolver(ClusterSpec cluster_spec, std::string task_type, int task_id);

 private:
  ClusterSpec cluster_spec_;
  std::string task_type_;
  int task_id_ = 0;
};

/// The cluster of the environment variable TF_CONFIG (docs/clusters.md), which `tandem run
/// --workers` and others set. As tf.distribute.cluster_resolver.TFConfigClusterResolver.
class TFConfigClusterResolver : public ClusterResolver {
 public:
  /// Without TF_CONFIG there is no cluster. Throws InvalidArgumentError for an invalid value.
  TFConfigClusterResolver();
};

/// A cluster that the program knows. As tf.distribute.cluster_resolver.SimpleClusterResolver.
class SimpleClusterResolver : public ClusterResolver {
 public:
  /// Throws InvalidArgumentError for an invalid cluster or task.
  SimpleClusterResolver(ClusterSpec cluster_spec, std::string task_type, int task_id)
      : ClusterResolver(std::move(cluster_spec), std::move(task_type), task_id) {}
};

}  // namespace tandem::distribute
