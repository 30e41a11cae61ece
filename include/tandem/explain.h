// What a training step will take, told before training: where variables and operations live, memory
// a device, what collectives move, and what does not run where it was meant to.
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

// Devices by full name, sizes in bytes.
struct Explanation {
  struct VariableEntry {
    std::string name;
    DType dtype = float32;
    Shape shape;
    bool optimizer = false;            // a slot or count of the optimizer, not of the model
    std::int64_t bytes = 0;            // of one copy
    std::vector<std::string> devices;  // of the copies, in the order of the replicas
  };
  struct OperationEntry {
    std::string name;  // of the node that it comes from
    std::string type;  // "MatMul"; names that begin with _ are made by the graph's passes
    std::string device;
    std::vector<Shape> outputs;
    std::int64_t output_bytes = 0;
  };
  struct DeviceEntry {
    std::string device;
    std::int64_t limit = 0;        // 0: none
    std::int64_t weights = 0;      // the model's variables
    std::int64_t optimizer = 0;    // slots and counts
    std::int64_t gradients = 0;    // of trainable variables, once all are there
    std::int64_t activations = 0;  // the rest of the step's memory plan
    std::int64_t inputs = 0;       // the batch, or this device's part of it
    std::int64_t constants = 0;
    std::int64_t total() const {
      return weights + optimizer + gradients + activations + inputs + constants;
    }
    bool fits() const { return limit == 0 || total() <= limit; }
  };
  struct CollectiveEntry {
    std::string type;        // "all_reduce", "broadcast", ...
    std::int64_t bytes = 0;  // that each replica gives in a step
    int replicas = 0;
    std::vector<std::string> variables;  // that are changed by its results, as they are
  };
  struct FallbackEntry {
    std::string operation, type, device, reason;
  };

  std::int64_t batch = 0;  // global
  int num_replicas = 1;
  std::vector<std::string> replica_devices{};
  std::vector<VariableEntry> variables{};
  std::vector<OperationEntry> operations{};  // in the order of the program
  std::vector<DeviceEntry> devices{};        // those that the step uses
  std::vector<CollectiveEntry> collectives{};
  std::vector<FallbackEntry> fallbacks{};  // operations on the CPU though the replicas have GPUs

  /// The same as tables: devices, variables, the operations of the first replica, collectives, and
  /// what runs on the CPU though there are GPUs.
  std::string to_string() const;
};
/// Writes to_string().
std::ostream& operator<<(std::ostream& out, const Explanation& explanation);

// Traces the training step of a compiled model on `batch` (inputs, targets and perhaps sample
// weights, of the global size; the elements do not matter), makes it ready as td::function would,
// and reads what comes out; nothing is run. Makes the variables of the model and the optimizer, as
// fit() would. What kernels need while they run (workspace), rounding (to 256 bytes a tensor) and
// what loops keep of their iterations for gradients are not in the figures. Throws
// FailedPreconditionError for a model that is not compiled, InvalidArgumentError for a batch that
// does not suit it, and ResourceExhaustedError when not even the variables fit.
Explanation explain(const Model& model, const data::Example& batch);

}  // namespace tandem
