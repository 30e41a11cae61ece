#include "cuda/cudnn/fake_cudnn.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <mutex>
#include <stdexcept>

#include "cuda/cudnn/fake_graph.h"
#include "cuda/fake_cuda.h"
#include "ops/cuda/module/cudnn_library.h"

struct cudnnContext {
  cudaStream_t stream = nullptr;
};

namespace tandem::fake_cudnn {
namespace {

std::size_t size_of_type(cudnnBackendAttributeType_t type) {
  switch (type) {
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_DOUBLE:
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR: return 8;
    case CUDNN_TYPE_BOOLEAN: return 1;
    default: return 4;
  }
}

struct State {
  std::mutex mutex;
  std::map<cudnnBackendHeurMode_t, std::vector<Engine>> engines = {
      {CUDNN_HEUR_MODE_A, {{}}}, {CUDNN_HEUR_MODE_B, {{}}}, {CUDNN_HEUR_MODE_FALLBACK, {{}}}};
  cudnnStatus_t fusion = CUDNN_STATUS_SUCCESS;
  std::size_t version = CUDNN_VERSION;
  Calls calls;
};
State& state() {
  static State* const instance = new State;
  return *instance;
}

std::size_t version() {
  const std::lock_guard lock(state().mutex);
  return state().version;
}

cudnnStatus_t create(cudnnHandle_t* handle) {
  const std::lock_guard lock(state().mutex);
  ++state().calls.handles;
  *handle = new cudnnContext;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t set_stream(cudnnHandle_t handle, cudaStream_t stream) {
  handle->stream = stream;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t create_descriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t* made) {
  const std::lock_guard lock(state().mutex);
  ++state().calls.alive;
  *made = new Node{.type = type, .finalized = false, .attributes = {}, .engine = {}};
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t destroy_descriptor(cudnnBackendDescriptor_t descriptor) {
  const std::lock_guard lock(state().mutex);
  --state().calls.alive;
  delete static_cast<Node*>(descriptor);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t set_attribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                            cudnnBackendAttributeType_t type, std::int64_t count,
                            const void* values) {
  auto& node = *static_cast<Node*>(descriptor);
  if (node.finalized) return CUDNN_STATUS_BAD_PARAM;
  const auto* bytes = static_cast<const std::byte*>(values);
  if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR)
    for (std::int64_t i = 0; i < count; ++i)
      if (!static_cast<Node* const*>(values)[i]->finalized)
        return CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED;
  node.attributes[name] = {
      type, count,
      std::vector(bytes, bytes + static_cast<std::size_t>(count) * size_of_type(type))};
  return CUDNN_STATUS_SUCCESS;
}

template <class F>
cudnnStatus_t status_of(const F& call) {
  try {
    call();
    return CUDNN_STATUS_SUCCESS;
  } catch (const Refused& refused) {
    return refused.status;
  } catch (const std::out_of_range&) {  // an attribute that was not set
    return CUDNN_STATUS_BAD_PARAM;
  }
}

cudnnStatus_t finalize(cudnnBackendDescriptor_t descriptor) {
  const std::lock_guard lock(state().mutex);
  auto& node = *static_cast<Node*>(descriptor);
  node.finalized = true;
  switch (node.type) {
    case CUDNN_BACKEND_TENSOR_DESCRIPTOR:
      return status_of([&] { static_cast<void>(Tensor(node)); });
    case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR: {
      const cudnnStatus_t status = status_of([&] { static_cast<void>(Graph(node)); });
      const bool fused = node.all<void*>(CUDNN_ATTR_OPERATIONGRAPH_OPS).size() > 1;
      return status == CUDNN_STATUS_SUCCESS && fused ? state().fusion : status;
    }
    case CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR:
      state().calls.heuristics.push_back(
          node.one<cudnnBackendHeurMode_t>(CUDNN_ATTR_ENGINEHEUR_MODE));
      return CUDNN_STATUS_SUCCESS;
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR:  // which compiles and loads kernels
      if (fake_cuda::spoil_recording()) return CUDNN_STATUS_EXECUTION_FAILED;
      return node.node(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG).engine->plan;
    default: return CUDNN_STATUS_SUCCESS;
  }
}

cudnnStatus_t get_attribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                            cudnnBackendAttributeType_t, std::int64_t most, std::int64_t* count,
                            void* values) {
  const std::lock_guard lock(state().mutex);
  auto& node = *static_cast<Node*>(descriptor);
  switch (name) {
    case CUDNN_ATTR_ENGINEHEUR_RESULTS: {
      const auto& engines =
          state().engines[node.one<cudnnBackendHeurMode_t>(CUDNN_ATTR_ENGINEHEUR_MODE)];
      *count = static_cast<std::int64_t>(engines.size());
      for (std::int64_t i = 0; i < std::min(most, *count); ++i) {
        Node& config = *static_cast<Node**>(values)[i];
        config.engine = engines[static_cast<std::size_t>(i)];
        config.attributes[CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH] =
            node.attributes.at(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
        config.finalized = true;
      }
      return CUDNN_STATUS_SUCCESS;
    }
    case CUDNN_ATTR_ENGINECFG_ENGINE:
      (*static_cast<Node**>(values))->engine = node.engine;
      *count = 1;
      return CUDNN_STATUS_SUCCESS;
    case CUDNN_ATTR_ENGINE_NUMERICAL_NOTE: {
      const auto& notes = node.engine->notes;
      *count = static_cast<std::int64_t>(notes.size());
      std::copy(notes.begin(), notes.end(), static_cast<cudnnBackendNumericalNote_t*>(values));
      return CUDNN_STATUS_SUCCESS;
    }
    case CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE:
      *static_cast<std::int64_t*>(values) =
          node.node(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG).engine->workspace;
      *count = 1;
      return CUDNN_STATUS_SUCCESS;
    default: return CUDNN_STATUS_BAD_PARAM;
  }
}

cudnnStatus_t execute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                      cudnnBackendDescriptor_t variant) {
  const Node& config =
      static_cast<const Node*>(plan)->node(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
  const auto& pack = *static_cast<const Node*>(variant);
  {
    const std::lock_guard lock(state().mutex);
    state().calls.runs.push_back(config.engine->workspace);
  }
  if (config.engine->run != CUDNN_STATUS_SUCCESS) return config.engine->run;
  const auto ids = pack.all<std::int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  const auto addresses = pack.all<void*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
  std::map<std::int64_t, void*> memory;
  for (std::size_t i = 0; i < ids.size(); ++i) memory[ids[i]] = addresses.at(i);
  if (config.engine->workspace > 0 && !pack.one<void*>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE))
    return CUDNN_STATUS_BAD_PARAM_NULL_POINTER;
  return status_of([&] {
    const Graph graph(config.node(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH));
    fake_cuda::enqueue(handle->stream, graph.task(memory));
    fake_cuda::count_cudnn_run();
  });
}

}  // namespace

void set_version(std::size_t version) {
  const std::lock_guard lock(state().mutex);
  state().version = version;
}

void set_engines(cudnnBackendHeurMode_t mode, std::vector<Engine> engines) {
  const std::lock_guard lock(state().mutex);
  state().engines[mode] = std::move(engines);
}

void set_fusion(cudnnStatus_t status) {
  const std::lock_guard lock(state().mutex);
  state().fusion = status;
}

Calls calls() {
  const std::lock_guard lock(state().mutex);
  return state().calls;
}

}  // namespace tandem::fake_cudnn

namespace tandem::cuda {

const CudnnLibrary* cudnn() {
  static const CudnnLibrary library = {
      .version = fake_cudnn::version,
      .error_string = [](cudnnStatus_t) { return "an error of the fake"; },
      .last_error_string = [](char* text,
                              std::size_t size) { std::snprintf(text, size, "its explanation"); },
      .create = fake_cudnn::create,
      .set_stream = fake_cudnn::set_stream,
      .create_descriptor = fake_cudnn::create_descriptor,
      .destroy_descriptor = fake_cudnn::destroy_descriptor,
      .finalize = fake_cudnn::finalize,
      .set_attribute = fake_cudnn::set_attribute,
      .get_attribute = fake_cudnn::get_attribute,
      .execute = fake_cudnn::execute};
  return &library;
}

}  // namespace tandem::cuda
