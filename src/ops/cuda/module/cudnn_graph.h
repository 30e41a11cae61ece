// Graphs of cuDNN's operations in the making.
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

// Of images and their kernels: n, channels, rows, columns, or out, in, rows, columns. Of attention:
// batch, heads, and a matrix's rows and columns.
using CudnnSizes = std::array<std::int64_t, 4>;
CudnnSizes packed_strides(const CudnnSizes& sizes);

struct TensorDescription {
  std::int64_t id;
  cudnnDataType_t type;
  CudnnSizes sizes, strides;
  bool is_virtual = false;   // from one operation of the graph to the next, never in memory
  bool is_by_value = false;  // one number, which lies in the host's memory
  bool operator==(const TensorDescription&) const = default;
};

// What a plan is made of. Without descriptors where cuDNN refuses the graph.
struct CudnnGraph {
  std::vector<Descriptor> descriptors;  // the graph is the last
  std::vector<std::int64_t> ids;        // of the tensors that have an address in a run

  explicit operator bool() const { return !descriptors.empty(); }
  const Descriptor& operations() const { return descriptors.back(); }
};

class GraphMaker {
 public:
  using Tensor = cudnnBackendDescriptor_t;

  // Tensors in memory are of this alignment, in bytes; `compute` is the type of sums.
  GraphMaker(const CudnnLibrary& library, unsigned alignment, cudnnDataType_t compute)
      : library_(library), alignment_(alignment), compute_(compute) {}

  Tensor tensor(const TensorDescription& of);
  // One that is virtual, with an id of its own.
  Tensor between(cudnnDataType_t type, const CudnnSizes& sizes, const CudnnSizes& strides);
  Tensor between(cudnnDataType_t type, const CudnnSizes& sizes) {
    return between(type, sizes, packed_strides(sizes));
  }
  Tensor by_value(std::int64_t id);  // of the type of sums

  struct Pointwise {
    cudnnPointwiseMode_t mode;
    std::optional<cudnnDataType_t> compute = {};  // the graph's, if not set
    std::optional<std::int64_t> axis = {};
    std::optional<double> upper_clip = {};
  };
  // The operations give back their result. Operands: x, b, and where to take which.
  Tensor pointwise(const Pointwise& what, std::initializer_list<Tensor> operands, Tensor y);
  Tensor matmul(Tensor a, Tensor b, Tensor c);
  // Along the axes that are shorter in y.
  Tensor reduce(cudnnReduceTensorOp_t what, Tensor x, Tensor y);
  // The same memory by other sizes and strides.
  Tensor reshape(Tensor x, Tensor y);

  // For operations that have no function above: described, then added.
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

  // Of the operations in the order in which they were made. REQUIRES: nothing is asked afterwards.
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
