/// @file
/// TPUs, and any other accelerator with a PJRT plug-in (config::load_pjrt_plugin): training steps
/// are compiled for them as a whole. As tf.distribute.TPUStrategy.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tandem/distribute.h"
#include "tandem/tpu_system.h"

namespace tandem::distribute {

/// Options of TPUStrategy.
struct TPUStrategyOptions {
  /// Devices, with one replica each. Default: all TPUs. Throws InvalidArgumentError "No duplicates
  /// allowed in `devices` argument: (...)" and for devices that do not exist.
  std::vector<std::string> devices{};
  /// Instead of `devices`: the cores of the replicas, of this process. Throws UnimplementedError
  /// for replicas with more than one core.
  std::optional<DeviceAssignment> device_assignment{};
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
