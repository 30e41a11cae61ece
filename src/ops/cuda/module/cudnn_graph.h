// A convolution as a graph of cuDNN's operations, and the engines that cuDNN has for it.
#pragma once

#include <array>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "ops/cuda/cudnn.h"
#include "ops/cuda/module/cudnn_library.h"

namespace tandem::cuda {

// Sizes and strides in cuDNN's order: n, channels, rows, columns; of a kernel: out, in, kh, kw.
struct TensorDescription {
  std::int64_t id;
  cudnnDataType_t type;
  std::array<std::int64_t, 4> sizes, strides;
  bool is_virtual = false;  // from one operation of the graph to the next, never in memory
  bool operator==(const TensorDescription&) const = default;
};

inline constexpr std::int64_t kIdX = 1, kIdKernel = 2, kIdY = 3, kIdBias = 4, kIdConvolved = 5,
                              kIdBiased = 6;

// What cuDNN is told of a convolution. Pairs are of rows and columns.
struct ConvDescription {
  TensorDescription x, kernel, y, bias;
  std::array<std::int64_t, 2> pads_before, pads_after, strides, dilations;
  cudnnDataType_t compute;  // the type of sums
};
ConvDescription describe(const CudnnConv& conv);

// The attribute type of a value. Handles of cuDNN are pointers to a type of their own.
template <class V>
inline constexpr cudnnBackendAttributeType_t kAttributeType = [] {
  if constexpr (std::is_same_v<V, std::int64_t>) return CUDNN_TYPE_INT64;
  if constexpr (std::is_same_v<V, float>) return CUDNN_TYPE_FLOAT;
  if constexpr (std::is_same_v<V, double>) return CUDNN_TYPE_DOUBLE;
  if constexpr (std::is_same_v<V, bool>) return CUDNN_TYPE_BOOLEAN;
  if constexpr (std::is_same_v<V, char>) return CUDNN_TYPE_CHAR;
  if constexpr (std::is_same_v<V, void*>) return CUDNN_TYPE_VOID_PTR;
  if constexpr (std::is_same_v<V, cudnnHandle_t>) return CUDNN_TYPE_HANDLE;
  if constexpr (std::is_same_v<V, cudnnDataType_t>) return CUDNN_TYPE_DATA_TYPE;
  if constexpr (std::is_same_v<V, cudnnConvolutionMode_t>) return CUDNN_TYPE_CONVOLUTION_MODE;
  if constexpr (std::is_same_v<V, cudnnPointwiseMode_t>) return CUDNN_TYPE_POINTWISE_MODE;
  if constexpr (std::is_same_v<V, cudnnBackendHeurMode_t>) return CUDNN_TYPE_HEUR_MODE;
}();

// One of cuDNN's backend descriptors. Calls that fail throw.
class Descriptor {
 public:
  Descriptor(const CudnnLibrary& library, cudnnBackendDescriptorType_t type);
  Descriptor(Descriptor&& other) noexcept
      : library_(other.library_), raw_(std::exchange(other.raw_, nullptr)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(library_, other.library_);
    std::swap(raw_, other.raw_);
    return *this;
  }
  ~Descriptor();

  template <class V>
  void set(cudnnBackendAttributeName_t name, const V& value) {
    set_all(name, kAttributeType<V>, 1, &value);
  }
  template <class V, std::size_t kCount>
  void set(cudnnBackendAttributeName_t name, const std::array<V, kCount>& values) {
    set_all(name, kAttributeType<V>, kCount, values.data());
  }
  template <class V>
  void set(cudnnBackendAttributeName_t name, const std::vector<V>& values) {
    set_all(name, kAttributeType<V>, static_cast<std::int64_t>(values.size()), values.data());
  }
  void set(cudnnBackendAttributeName_t name, const Descriptor& value) {
    set_all(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value.raw_);
  }
  void set_all(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
               std::int64_t count, const void* values);
  // Into at most `count` values; returns how many there are.
  std::int64_t get(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                   std::int64_t count, void* values) const;
  void finalize(const char* what);
  // False where cuDNN refuses (is_refusal()).
  bool try_finalize(const char* what);

  cudnnBackendDescriptor_t raw() const { return raw_; }

 private:
  const CudnnLibrary* library_;
  cudnnBackendDescriptor_t raw_ = nullptr;
};

// For which GPU: that of a handle, or, where there is no GPU, one whose properties are given.
struct CudnnTarget {
  cudnnHandle_t handle = nullptr;
  const Descriptor* properties = nullptr;
};

// The operations of a graph and the graph, which is last. Empty where cuDNN refuses it.
std::vector<Descriptor> make_graph(const CudnnLibrary& library, const CudnnTarget& target,
                                   const CudnnConv& conv, unsigned alignment);

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
