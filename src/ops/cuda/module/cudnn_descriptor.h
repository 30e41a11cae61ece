// cuDNN's backend descriptors, and the GPU that they are made for.
#pragma once

#include <array>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include "ops/cuda/module/cudnn_library.h"

namespace tandem::cuda {

// The cuDNN attribute type of a C++ value. Each kind of cuDNN handle is a distinct pointer type.
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
  if constexpr (std::is_same_v<V, cudnnReduceTensorOp_t>) return CUDNN_TYPE_REDUCTION_OPERATOR_TYPE;
  if constexpr (std::is_same_v<V, cudnnBackendHeurMode_t>) return CUDNN_TYPE_HEUR_MODE;
}();

// Owns one backend descriptor. Functions throw if cuDNN fails (check_cudnn()).
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
  // Reads at most `count` values and returns how many there are.
  std::int64_t get(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                   std::int64_t count, void* values) const;
  void finalize(const char* what);
  // Returns false if cuDNN does not support the description (is_refusal()).
  bool try_finalize(const char* what);

  cudnnBackendDescriptor_t raw() const { return raw_; }

 private:
  const CudnnLibrary* library_;
  cudnnBackendDescriptor_t raw_ = nullptr;
};

// The GPU of a graph: that of a handle, or, without a GPU, one that is given by its properties.
struct CudnnTarget {
  cudnnHandle_t handle = nullptr;
  const Descriptor* properties = nullptr;
};

}  // namespace tandem::cuda
