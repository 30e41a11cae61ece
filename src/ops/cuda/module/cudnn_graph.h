// Builds graphs of cuDNN operations.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <vector>

#include "ops/cuda/module/cudnn_descriptor.h"
#include "tandem/dtype.h"

namespace tandem::cuda {

cudnnDataType_t cudnn_type_of(DType dtype);

// Images have the sizes n, channels, rows, columns; convolution kernels out, in, rows, columns;
// attention batch, heads, and the rows and columns of a matrix.
using CudnnSizes = std::array<std::int64_t, 4>;
CudnnSizes packed_strides(const CudnnSizes& sizes);

struct TensorDescription {
  std::int64_t id;
  cudnnDataType_t type;
  CudnnSizes sizes, strides;
  bool is_virtual = false;   // only passed between operations of the graph, never in memory
  bool is_by_value = false;  // one number in host memory
  bool operator==(const TensorDescription&) const = default;
};

// A finished graph. It has no descriptors if cuDNN does not support it.
struct CudnnGraph {
  std::vector<Descriptor> descriptors;  // the graph is the last one
  std::vector<std::int64_t> ids;        // the tensors that need an address in each run

  explicit operator bool() const { return !descriptors.empty(); }
  const Descriptor& operations() const { return descriptors.back(); }
};

class GraphMaker {
 public:
  using Tensor = cudnnBackendDescriptor_t;

  // `alignment` of tensors in memory, in bytes; `compute` is the type in which sums are
  // accumulated.
  GraphMaker(const CudnnLibrary& library, unsigned alignment, cudnnDataType_t compute)
      : library_(library), alignment_(alignment), compute_(compute) {}

  Tensor tensor(const TensorDescription& of);
  // A virtual tensor with a new id.
  Tensor between(cudnnDataType_t type, const CudnnSizes& sizes, const CudnnSizes& strides);
  Tensor between(cudnnDataType_t type, const CudnnSizes& sizes) {
    return between(type, sizes, packed_strides(sizes));
  }
  Tensor by_value(std::int64_t id);  // of the compute type

  struct Pointwise {
    cudnnPointwiseMode_t mode;
    std::optional<cudnnDataType_t> compute = {};  // the graph's by default
    std::optional<std::int64_t> axis = {};
    std::optional<double> upper_clip = {};
  };
  // Add an operation and return its result `y`. Operands are x, b, and the condition of a
  // selection.
  Tensor pointwise(const Pointwise& what, std::initializer_list<Tensor> operands, Tensor y);
  Tensor matmul(Tensor a, Tensor b, Tensor c);
  // Reduces the axes that are shorter in y.
  Tensor reduce(cudnnReduceTensorOp_t what, Tensor x, Tensor y);
  // The same memory with other sizes and strides.
  Tensor reshape(Tensor x, Tensor y);

  // For operations without a function above: make a descriptor, then add it.
  Descriptor& make(cudnnBackendDescriptorType_t type) {
    return descriptors_.emplace_back(library_, type);
  }
  static void connect(Descriptor& operation, cudnnBackendAttributeName_t name, Tensor to) {
    operation.set_all(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &to);
  }
  static Tensor finished(Descriptor& descriptor, const char* what) {
    descriptor.finalize(what);
    return descriptor.raw();
  }
  void add(Descriptor& operation, const char* what) {
    operations_.push_back(finished(operation, what));
  }

  // The graph of the operations in the order in which they were added. REQUIRES: it is the last
  // call.
  CudnnGraph finish(const CudnnTarget& target);

 private:
  const CudnnLibrary& library_;
  const unsigned alignment_;
  const cudnnDataType_t compute_;
  std::int64_t next_virtual_id_ = 1000;
  std::vector<Descriptor> descriptors_;
  std::vector<cudnnBackendDescriptor_t> operations_;
  std::vector<std::int64_t> ids_;
};

}  // namespace tandem::cuda
