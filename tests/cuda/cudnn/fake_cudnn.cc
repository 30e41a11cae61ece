#include "cuda/cudnn/fake_cudnn.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "cuda/fake_cuda.h"
#include "ops/cuda/module/cudnn_library.h"
#include "tandem/dtype.h"

struct cudnnContext {
  cudaStream_t stream = nullptr;
};

namespace tandem::fake_cudnn {
namespace {

struct Attribute {
  cudnnBackendAttributeType_t type;
  std::int64_t count;
  std::vector<std::byte> bytes;
};

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

struct Node {
  cudnnBackendDescriptorType_t type;
  bool finalized = false;
  std::map<cudnnBackendAttributeName_t, Attribute> attributes;
  std::optional<Engine> engine;  // of what heuristics gave

  template <class V>
  std::vector<V> all(cudnnBackendAttributeName_t name) const {
    const Attribute& found = attributes.at(name);
    std::vector<V> values(static_cast<std::size_t>(found.count));
    std::memcpy(values.data(), found.bytes.data(), found.bytes.size());
    return values;
  }
  template <class V>
  V one(cudnnBackendAttributeName_t name) const {
    return all<V>(name).at(0);
  }
  const Node& node(cudnnBackendAttributeName_t name) const {
    return *static_cast<const Node*>(one<void*>(name));
  }
  bool has(cudnnBackendAttributeName_t name) const { return attributes.contains(name); }
};

struct State {
  std::mutex mutex;
  std::map<cudnnBackendHeurMode_t, std::vector<Engine>> engines = {
      {CUDNN_HEUR_MODE_A, {{}}}, {CUDNN_HEUR_MODE_B, {{}}}, {CUDNN_HEUR_MODE_FALLBACK, {{}}}};
  cudnnStatus_t fusion = CUDNN_STATUS_SUCCESS;
  Calls calls;
};
State& state() {
  static State* const instance = new State;
  return *instance;
}

// A tensor of the graph with its memory, as numbers of double.
struct Tensor {
  cudnnDataType_t type;
  std::vector<std::int64_t> sizes, strides;
  void* memory = nullptr;

  Tensor(const Node& node, const std::map<std::int64_t, void*>& pack)
      : type(node.one<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE)),
        sizes(node.all<std::int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS)),
        strides(node.all<std::int64_t>(CUDNN_ATTR_TENSOR_STRIDES)) {
    const auto found = pack.find(node.one<std::int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID));
    if (found != pack.end()) memory = found->second;
  }

  std::int64_t at(std::int64_t a, std::int64_t b, std::int64_t c, std::int64_t d) const {
    return a * strides[0] + b * strides[1] + c * strides[2] + d * strides[3];
  }
  double load(std::int64_t index) const {
    switch (type) {
      case CUDNN_DATA_DOUBLE: return static_cast<const double*>(memory)[index];
      case CUDNN_DATA_HALF: return static_cast<const Half*>(memory)[index];
      case CUDNN_DATA_BFLOAT16: return static_cast<const BFloat16*>(memory)[index];
      default: return static_cast<const float*>(memory)[index];
    }
  }
  void store(std::int64_t index, double value) const {
    const auto single = static_cast<float>(value);
    switch (type) {
      case CUDNN_DATA_DOUBLE: static_cast<double*>(memory)[index] = value; return;
      case CUDNN_DATA_HALF: static_cast<Half*>(memory)[index] = Half(single); return;
      case CUDNN_DATA_BFLOAT16: static_cast<BFloat16*>(memory)[index] = BFloat16(single); return;
      default: static_cast<float*>(memory)[index] = single; return;
    }
  }
};

// What is done with each sum of a forward pass, by output channel.
using Epilogue = std::function<double(double, std::int64_t)>;

struct Convolution {
  Tensor x, kernel, y;
  std::vector<std::int64_t> pads, strides, dilations;

  Convolution(const Node& node, const Tensor& x_is, const Tensor& kernel_is, const Tensor& y_is)
      : x(x_is),
        kernel(kernel_is),
        y(y_is),
        pads(node.all<std::int64_t>(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS)),
        strides(node.all<std::int64_t>(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES)),
        dilations(node.all<std::int64_t>(CUDNN_ATTR_CONVOLUTION_DILATIONS)) {}

  // Calls body(index in x, index in the kernel, index in y, output channel) for all that meet.
  template <class Body>
  void for_all(const Body& body) const {
    const std::int64_t in = kernel.sizes[1], out = y.sizes[1] / (x.sizes[1] / in);
    for (std::int64_t n = 0; n < y.sizes[0]; ++n)
      for (std::int64_t o = 0; o < y.sizes[1]; ++o)
        for (std::int64_t oy = 0; oy < y.sizes[2]; ++oy)
          for (std::int64_t ox = 0; ox < y.sizes[3]; ++ox)
            for (std::int64_t ky = 0; ky < kernel.sizes[2]; ++ky)
              for (std::int64_t kx = 0; kx < kernel.sizes[3]; ++kx) {
                const std::int64_t iy = oy * strides[0] - pads[0] + ky * dilations[0];
                const std::int64_t ix = ox * strides[1] - pads[1] + kx * dilations[1];
                if (iy < 0 || iy >= x.sizes[2] || ix < 0 || ix >= x.sizes[3]) continue;
                for (std::int64_t i = 0; i < in; ++i)
                  body(x.at(n, o / out * in + i, iy, ix), kernel.at(o, i, ky, kx),
                       y.at(n, o, oy, ox));
              }
  }

  static std::size_t span_of(const Tensor& tensor) {
    std::int64_t last = 0;
    for (std::size_t i = 0; i < 4; ++i) last += (tensor.sizes[i] - 1) * tensor.strides[i];
    return static_cast<std::size_t>(last) + 1;
  }
  static void store_all(const Tensor& to, const std::vector<double>& sums) {
    for (std::size_t i = 0; i < sums.size(); ++i) to.store(static_cast<std::int64_t>(i), sums[i]);
  }

  void forward(const Tensor& result, const std::vector<Epilogue>& epilogues) const {
    std::vector<double> sums(span_of(y));
    for_all([&](std::int64_t at_x, std::int64_t at_kernel, std::int64_t at_y) {
      sums[static_cast<std::size_t>(at_y)] += x.load(at_x) * kernel.load(at_kernel);
    });
    for (std::size_t i = 0; i < sums.size(); ++i)  // channels lie last
      for (const Epilogue& epilogue : epilogues)
        sums[i] = epilogue(sums[i], static_cast<std::int64_t>(i) % y.sizes[1]);
    store_all(result, sums);
  }
  void backward_input() const {
    std::vector<double> sums(span_of(x));
    for_all([&](std::int64_t at_x, std::int64_t at_kernel, std::int64_t at_y) {
      sums[static_cast<std::size_t>(at_x)] += y.load(at_y) * kernel.load(at_kernel);
    });
    store_all(x, sums);
  }
  void backward_kernel() const {
    std::vector<double> sums(span_of(kernel));
    for_all([&](std::int64_t at_x, std::int64_t at_kernel, std::int64_t at_y) {
      sums[static_cast<std::size_t>(at_kernel)] += y.load(at_y) * x.load(at_x);
    });
    store_all(kernel, sums);
  }
};

Epilogue epilogue_of(const Node& operation, const std::map<std::int64_t, void*>& pack) {
  const Node& what = operation.node(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
  if (what.one<cudnnPointwiseMode_t>(CUDNN_ATTR_POINTWISE_MODE) == CUDNN_POINTWISE_ADD) {
    const Tensor bias(operation.node(CUDNN_ATTR_OPERATION_POINTWISE_BDESC), pack);
    return [bias](double sum, std::int64_t channel) {
      return sum + bias.load(bias.at(0, channel, 0, 0));
    };
  }
  const std::optional<double> most =
      what.has(CUDNN_ATTR_POINTWISE_RELU_UPPER_CLIP)
          ? std::optional(what.one<double>(CUDNN_ATTR_POINTWISE_RELU_UPPER_CLIP))
          : std::nullopt;
  return [most](double sum, std::int64_t) {
    const double positive = sum < 0 ? 0 : sum;
    return most && positive > *most ? *most : positive;
  };
}

// What running the graph does.
std::function<void()> task_of(const Node& graph, const std::map<std::int64_t, void*>& pack) {
  std::vector<const Node*> operations;
  for (void* each : graph.all<void*>(CUDNN_ATTR_OPERATIONGRAPH_OPS))
    operations.push_back(static_cast<const Node*>(each));
  const Node& first = *operations.front();
  const auto convolution = [&](auto conv, auto x, auto kernel, auto y) {
    return Convolution(first.node(conv), Tensor(first.node(x), pack),
                       Tensor(first.node(kernel), pack), Tensor(first.node(y), pack));
  };
  switch (first.type) {
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
      return [made = convolution(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY)] {
        made.backward_input();
      };
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR:
      return [made = convolution(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY)] {
        made.backward_kernel();
      };
    default: break;
  }
  std::vector<Epilogue> epilogues;
  for (std::size_t i = 1; i < operations.size(); ++i)
    epilogues.push_back(epilogue_of(*operations[i], pack));
  const Node& last =
      operations.back()->node(operations.size() == 1 ? CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y
                                                     : CUDNN_ATTR_OPERATION_POINTWISE_YDESC);
  return [made = convolution(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                             CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                             CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                             CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y),
          result = Tensor(last, pack), epilogues] { made.forward(result, epilogues); };
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

cudnnStatus_t finalize(cudnnBackendDescriptor_t descriptor) {
  const std::lock_guard lock(state().mutex);
  auto& node = *static_cast<Node*>(descriptor);
  node.finalized = true;
  switch (node.type) {
    case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR:
      return node.all<void*>(CUDNN_ATTR_OPERATIONGRAPH_OPS).size() > 1 ? state().fusion
                                                                       : CUDNN_STATUS_SUCCESS;
    case CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR:
      state().calls.heuristics.push_back(
          node.one<cudnnBackendHeurMode_t>(CUDNN_ATTR_ENGINEHEUR_MODE));
      return CUDNN_STATUS_SUCCESS;
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR:
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
  fake_cuda::enqueue(handle->stream,
                     task_of(config.node(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH), memory));
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace

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
