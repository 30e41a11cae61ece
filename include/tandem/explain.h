/// @file
/// Cost of a training step, without running it: placement of variables and operations, memory per
/// device, communication, and operations that fall back to the CPU.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include "tandem/data.h"
#include "tandem/dtype.h"
#include "tandem/model.h"
#include "tandem/shape.h"

namespace tandem {

/// Result of explain(). Devices are full names, sizes are in bytes.
struct Explanation {
  /// A variable.
  struct VariableEntry {
    std::string name;        ///< name of the variable
    DType dtype = float32;   ///< its dtype
    Shape shape;             ///< its shape
    bool optimizer = false;  ///< whether it belongs to the optimizer (a slot or a counter)
    std::int64_t bytes = 0;  ///< size of one copy
    std::vector<std::string> devices;  ///< devices of the copies, by replica
  };
  /// An operation of the traced step.
  struct OperationEntry {
    std::string name;    ///< name of the node in the graph
    std::string type;    ///< for example "MatMul"; graph passes create types with a leading _
    std::string device;  ///< device that runs it
    std::vector<Shape> outputs;     ///< shapes of its outputs
    std::int64_t output_bytes = 0;  ///< total size of its outputs
  };
  /// Memory of a device.
  struct DeviceEntry {
    std::string device;            ///< name of the device
    std::int64_t limit = 0;        ///< memory limit; 0 if there is none
    std::int64_t weights = 0;      ///< the model's variables
    std::int64_t optimizer = 0;    ///< the optimizer's slots and counters
    std::int64_t gradients = 0;    ///< gradients of all trainable variables
    std::int64_t activations = 0;  ///< everything else in the step's memory plan
    std::int64_t inputs = 0;       ///< the device's part of the batch
    std::int64_t constants = 0;    ///< constants of the graph
    /// Sum of all parts.
    std::int64_t total() const {
      return weights + optimizer + gradients + activations + inputs + constants;
    }
    /// Whether total() is within the limit.
    bool fits() const { return limit == 0 || total() <= limit; }
  };
  /// A collective of the step.
  struct CollectiveEntry {
    std::string type;                    ///< "all_reduce", "broadcast", ...
    std::int64_t bytes = 0;              ///< size that each replica contributes per step
    int replicas = 0;                    ///< number of replicas
    std::vector<std::string> variables;  ///< variables that its results update
  };
  /// An operation that runs on the CPU although the replicas have GPUs.
  struct FallbackEntry {
    /// @{
    /// Name and type of the operation, the device that runs it, and the reason.
    std::string operation, type, device, reason;
    /// @}
  };

  /// A program that the devices of a PJRT plug-in run as a whole. Its operations are not listed
  /// above; sizes are those that the plug-in's compiler tells, of one replica.
  struct ProgramEntry {
    std::string name;                  ///< name of the last operation
    std::vector<std::string> devices;  ///< devices of the replicas
    std::string stablehlo;             ///< the program's text
    std::int64_t arguments = 0;        ///< variables, inputs and constants
    std::int64_t outputs = 0;          ///< results, with the new elements of variables
    std::int64_t aliased = 0;          ///< part of the arguments that outputs reuse
    std::int64_t temporaries = 0;      ///< everything between
    std::int64_t code = 0;             ///< generated code
    double flops = 0.0;                ///< floating-point operations per step
    /// Memory of a step.
    std::int64_t total() const { return arguments + outputs - aliased + temporaries + code; }
  };

  std::int64_t batch = 0;                      ///< global batch size
  int num_replicas = 1;                        ///< number of replicas
  std::vector<std::string> replica_devices{};  ///< device of each replica
  std::vector<VariableEntry> variables{};      ///< variables of the model and the optimizer
  std::vector<OperationEntry> operations{};    ///< operations, in execution order
  std::vector<DeviceEntry> devices{};          ///< devices that the step uses
  std::vector<CollectiveEntry> collectives{};  ///< collectives of the step
  std::vector<FallbackEntry> fallbacks{};      ///< operations that fall back to the CPU
  std::vector<ProgramEntry> programs{};        ///< compiled programs of the step

  /// Formats everything as tables; of the operations only those of the first replica.
  std::string to_string() const;
};
/// Writes to_string().
std::ostream& operator<<(std::ostream& out, const Explanation& explanation);

/// Traces and compiles the training step of a compiled model for `batch`, without running it, and
/// reports its cost. `batch` holds inputs, targets and optionally sample weights of the global
/// batch size; the values do not matter. Creates the variables of the model and the optimizer, as
/// fit() does.
///
/// Not included: temporary memory of kernels (workspace), rounding of allocations to 256 bytes per
/// tensor, and values that loops keep for gradients.
///
/// Throws FailedPreconditionError for a model that is not compiled, InvalidArgumentError for a
/// batch that does not fit the model, and ResourceExhaustedError if the variables do not fit. Under
/// TPUStrategy also the errors of the plug-in's compiler.
Explanation explain(const Model& model, const data::Example& batch);

}  // namespace tandem
