// The engines that cuDNN has for a graph of operations.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ops/cuda/module/cudnn_descriptor.h"
#include "tandem/dtype.h"

namespace tandem::cuda {

// Which engines may be chosen.
struct EngineRules {
  bool tf32 = false;           // float32 on tensor cores
  bool deterministic = true;   // the same bits every time
  bool all = false;            // all that may be, to try them out; else the first
  std::int64_t workspace = 0;  // at most, in bytes
};
// As the environment says: TANDEM_ALLOW_TF32, TANDEM_DETERMINISTIC_OPS, TANDEM_CUDNN_AUTOTUNE,
// TANDEM_CUDNN_WORKSPACE_LIMIT_IN_MB.
EngineRules rules_of_environment();
bool is_allowed(std::span<const cudnnBackendNumericalNote_t> notes, DType dtype,
                const EngineRules& rules);

struct Engine {
  Descriptor config, plan;
  std::int64_t workspace;  // in bytes
};
// Those that run the graph by the rules, the best by cuDNN's own estimate first.
std::vector<Engine> find_engines(const CudnnLibrary& library, const CudnnTarget& target,
                                 const Descriptor& graph, DType dtype, const EngineRules& rules);

}  // namespace tandem::cuda
