/// @file
/// TPUs, and any other accelerator with a PJRT plug-in (config::load_pjrt_plugin): training steps
/// are compiled for them as a whole. As tf.distribute.TPUStrategy.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tandem/distribute.h"

namespace tandem::distribute {

/// The name of a TPU system. A value. As tf.distribute.cluster_resolver.TPUClusterResolver, without
/// its requests to the metadata server and to the Cloud TPU API. Tandem runs on attached TPUs,
/// those of a PJRT plug-in: initialize_tpu_system() and TPUStrategy refuse other systems.
class TPUClusterResolver {
 public:
  /// `tpu`: "local", the TPUs that are attached to this host; else the name or the addresses of
  /// others. "": the environment's, KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS or else TPU_NAME. Throws
  /// InvalidArgumentError "Please provide a TPU Name to connect to." if both are empty.
  explicit TPUClusterResolver(std::string tpu = "");
  /// Makes a resolver and initializes its system. Throws the errors of both.
  static TPUClusterResolver connect(const std::string& tpu = "");

  /// "local", the addresses or the name.
  const std::string& tpu() const { return tpu_; }
  /// Whether the TPUs are attached to this host.
  bool is_local() const { return tpu_ == "local"; }

 private:
  std::string tpu_;
};

/// Options of TPUStrategy.
struct TPUStrategyOptions {
  /// Devices, with one replica each. Default: all TPUs. Throws InvalidArgumentError "No duplicates
  /// allowed in `devices` argument: (...)" and for devices that do not exist.
  std::vector<std::string> devices{};
};

/// One replica per TPU core in one process, with a copy of every variable on each. The steps of all
/// replicas are one compiled program, which also reduces the gradients. As
/// tf.distribute.TPUStrategy.
///
/// - run() needs a traced function around it, as fit() has; else it throws UnimplementedError
///   "TPUStrategy.run(fn, ...) does not support pure eager execution. ...".
/// - If the replicas run the same operations on tensors of the same shapes, their steps are one
///   program. Else, as for a last batch that does not divide evenly, each replica has programs of
///   its own, and the host reduces between them: the results are the same, and the step is slower.
/// - Every operation of the step must have a lowering to StableHLO (docs/operations.md), else
///   UnimplementedError names it.
/// - reduce() supports kSum and kMean, else InvalidArgumentError "reduce_op=... is not supported.
///   ...".
///
/// Variables stay in the memory of the devices between steps; reading one copies it to the host.
/// Other operations on them run on a CPU.
class TPUStrategy : public Strategy {
 public:
  /// Makes a replica on each device. Throws NotFoundError if there is no TPU.
  explicit TPUStrategy(const TPUStrategyOptions& options = {});
  /// The same for the TPUs of a system. Throws UnimplementedError unless it is attached to this
  /// host.
  explicit TPUStrategy(const TPUClusterResolver& resolver, const TPUStrategyOptions& options = {});
};

}  // namespace tandem::distribute

/// Functions for the TPU system as a whole. As tf.tpu.experimental.
namespace tandem::tpu {

/// Initializes the devices, if they are not. As tf.tpu.experimental.initialize_tpu_system.
///
/// `resolver`: the system. Default: the one that the environment names (TPUClusterResolver), else
/// "local". A second call warns as TensorFlow does, but nothing is lost.
///
/// Throws NotFoundError "TPUs not found in the cluster. Failed in initialization: ..." if no TPU is
/// attached, UnimplementedError for a system that is not local, and RuntimeError in a traced
/// function.
void initialize_tpu_system(const std::optional<distribute::TPUClusterResolver>& resolver = {});

/// Forgets that the system was initialized; warns if it was not. The devices live as long as the
/// process, with all variables. Parameters and errors as initialize_tpu_system(), but it needs no
/// TPU. As tf.tpu.experimental.shutdown_tpu_system.
void shutdown_tpu_system(const std::optional<distribute::TPUClusterResolver>& resolver = {});

}  // namespace tandem::tpu
