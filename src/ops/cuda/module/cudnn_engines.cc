#include "ops/cuda/module/cudnn_engines.h"

#include <algorithm>
#include <array>
#include <optional>

#include "core/env.h"
#include "ops/cuda/tf32.h"

namespace tandem::cuda {
namespace {

// Tandem's environment variable if it is set, otherwise TensorFlow's.
template <class Value>
Value first_set(const std::optional<Value>& ours, const std::optional<Value>& theirs,
                Value neither) {
  return ours ? *ours : theirs.value_or(neither);
}

std::vector<Descriptor> configurations(const CudnnLibrary& library, const CudnnTarget& target,
                                       const Descriptor& graph, cudnnBackendHeurMode_t mode) {
  Descriptor heuristics(library, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_MODE, mode);
  if (target.properties) heuristics.set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, *target.properties);
  if (!heuristics.try_finalize("cuDNN's heuristics")) return {};
  const std::int64_t count =
      heuristics.get(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, nullptr);
  std::vector<Descriptor> made;
  std::vector<cudnnBackendDescriptor_t> raw;
  for (std::int64_t i = 0; i < count; ++i)
    raw.push_back(made.emplace_back(library, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR).raw());
  const std::int64_t filled = heuristics.get(CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                             CUDNN_TYPE_BACKEND_DESCRIPTOR, count, raw.data());
  made.erase(made.begin() + std::min(filled, count), made.end());
  return made;
}

bool allows(const CudnnLibrary& library, const Descriptor& config, DType dtype,
            const EngineRules& rules) {
  Descriptor engine(library, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  cudnnBackendDescriptor_t raw = engine.raw();
  config.get(CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &raw);
  std::array<cudnnBackendNumericalNote_t, CUDNN_NUMERICAL_NOTE_TYPE_COUNT> notes{};
  const auto count = static_cast<std::size_t>(
      engine.get(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                 static_cast<std::int64_t>(notes.size()), notes.data()));
  return is_allowed(std::span(notes).first(std::min(count, notes.size())), dtype, rules);
}

}  // namespace

EngineRules rules_from_environment() {
  const std::int64_t mib = first_set(
      env_int("TANDEM_CUDNN_WORKSPACE_LIMIT_IN_MB", 0, std::int64_t{1} << 30),
      env_int("TF_CUDNN_WORKSPACE_LIMIT_IN_MB", 0, std::int64_t{1} << 30), std::int64_t{1024});
  return {
      .tf32 = tf32_convolutions(),
      .deterministic =
          first_set(env_bool("TANDEM_DETERMINISTIC_OPS"), env_bool("TF_DETERMINISTIC_OPS"), true),
      .all = first_set(env_bool("TANDEM_CUDNN_AUTOTUNE"), env_bool("TF_CUDNN_USE_AUTOTUNE"), false),
      .workspace = mib << 20};
}

bool is_allowed(std::span<const cudnnBackendNumericalNote_t> notes, DType dtype,
                const EngineRules& rules) {
  const auto has = [&](cudnnBackendNumericalNote_t note) {
    return std::find(notes.begin(), notes.end(), note) != notes.end();
  };
  if (rules.deterministic && has(CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC)) return false;
  // Sums of 16-bit types must be accumulated in float32.
  if (has(CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION)) return false;
  if (dtype != float32) return true;
  return !has(CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS) &&
         (rules.tf32 || !has(CUDNN_NUMERICAL_NOTE_TENSOR_CORE));
}

std::vector<CudnnEngine> find_engines(const CudnnLibrary& library, const CudnnTarget& target,
                                      const Descriptor& graph, DType dtype,
                                      const EngineRules& rules) {
  std::vector<CudnnEngine> engines;
  // The engines with estimates come first. The fallback engines are slow, but supported.
  for (const auto mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_B, CUDNN_HEUR_MODE_FALLBACK}) {
    for (Descriptor& config : configurations(library, target, graph, mode)) {
      if (!allows(library, config, dtype, rules)) continue;
      Descriptor plan(library, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
      if (target.handle) plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, target.handle);
      if (target.properties) plan.set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, *target.properties);
      plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
      if (!plan.try_finalize("an execution plan")) continue;
      std::int64_t workspace = 0;
      plan.get(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &workspace);
      if (workspace > rules.workspace) continue;
      engines.push_back({std::move(config), std::move(plan), workspace});
      if (!rules.all) return engines;
    }
    if (!engines.empty()) break;
  }
  return engines;
}

}  // namespace tandem::cuda
