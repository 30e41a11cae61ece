// Finds the cuDNN engines that can run a graph.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ops/cuda/module/cudnn_descriptor.h"
#include "tandem/dtype.h"

namespace tandem::cuda {

// Which engines may be chosen.
struct EngineRules {
  bool tf32 = false;           // allows TF32 for float32
  bool deterministic = true;   // only engines whose results are bitwise reproducible
  bool all = false;            // all permitted engines, for autotuning; otherwise only the first
  std::int64_t workspace = 0;  // limit in bytes
};
// Reads TANDEM_ALLOW_TF32, TANDEM_DETERMINISTIC_OPS, TANDEM_CUDNN_AUTOTUNE and
// TANDEM_CUDNN_WORKSPACE_LIMIT_IN_MB from the environment.
EngineRules rules_from_environment();
bool is_allowed(std::span<const cudnnBackendNumericalNote_t> notes, DType dtype,
                const EngineRules& rules);

struct CudnnEngine {
  Descriptor config, plan;
  std::int64_t workspace;  // in bytes
};
// The engines that can run the graph under the rules, in the order of cuDNN's estimates, best
// first.
std::vector<CudnnEngine> find_engines(const CudnnLibrary& library, const CudnnTarget& target,
                                      const Descriptor& graph, DType dtype,
                                      const EngineRules& rules);

}  // namespace tandem::cuda
