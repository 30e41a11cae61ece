#include "ops/cuda/module/cudnn_graph.h"

namespace tandem::cuda {
namespace {

constexpr cudnnNanPropagation_t kPropagateNan = CUDNN_PROPAGATE_NAN;

constexpr std::array kOperands = {CUDNN_ATTR_OPERATION_POINTWISE_XDESC,
                                  CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
                                  CUDNN_ATTR_OPERATION_POINTWISE_TDESC};

}  // namespace

cudnnDataType_t cudnn_type_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat64: return CUDNN_DATA_DOUBLE;
    case DType::kFloat16: return CUDNN_DATA_HALF;
    case DType::kBFloat16: return CUDNN_DATA_BFLOAT16;
    default: return CUDNN_DATA_FLOAT;
  }
}

CudnnSizes packed_strides(const CudnnSizes& sizes) {
  return {sizes[1] * sizes[2] * sizes[3], sizes[2] * sizes[3], sizes[3], 1};
}

GraphMaker::Tensor GraphMaker::tensor(const TensorDescription& of) {
  Descriptor& made = make(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  made.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, of.id);
  made.set(CUDNN_ATTR_TENSOR_DATA_TYPE, of.type);
  made.set(CUDNN_ATTR_TENSOR_DIMENSIONS, of.sizes);
  made.set(CUDNN_ATTR_TENSOR_STRIDES, of.strides);
  made.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, std::int64_t{alignment_});
  if (of.is_virtual) made.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, true);
  if (of.is_by_value) made.set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, true);
  if (!of.is_virtual) ids_.push_back(of.id);
  return finished(made, "a tensor");
}

GraphMaker::Tensor GraphMaker::between(cudnnDataType_t type, const CudnnSizes& sizes,
                                       const CudnnSizes& strides) {
  return tensor({.id = next_virtual_id_++,
                 .type = type,
                 .sizes = sizes,
                 .strides = strides,
                 .is_virtual = true});
}

GraphMaker::Tensor GraphMaker::by_value(std::int64_t id) {
  return tensor({.id = id,
                 .type = compute_,
                 .sizes = {1, 1, 1, 1},
                 .strides = {1, 1, 1, 1},
                 .is_by_value = true});
}

GraphMaker::Tensor GraphMaker::pointwise(const Pointwise& what,
                                         std::initializer_list<Tensor> operands, Tensor y) {
  Descriptor& described = make(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  described.set(CUDNN_ATTR_POINTWISE_MODE, what.mode);
  described.set(CUDNN_ATTR_POINTWISE_MATH_PREC, what.compute.value_or(compute_));
  if (what.mode == CUDNN_POINTWISE_RELU_FWD)  // NaN must not become 0
    described.set_all(CUDNN_ATTR_POINTWISE_NAN_PROPAGATION, CUDNN_TYPE_NAN_PROPOGATION, 1,
                      &kPropagateNan);
  if (what.axis) described.set(CUDNN_ATTR_POINTWISE_AXIS, *what.axis);
  if (what.upper_clip) described.set(CUDNN_ATTR_POINTWISE_RELU_UPPER_CLIP, *what.upper_clip);
  const Tensor finished_what = finished(described, "a pointwise function");
  Descriptor& operation = make(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  connect(operation, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, finished_what);
  std::size_t at = 0;
  for (const Tensor operand : operands) connect(operation, kOperands[at++], operand);
  connect(operation, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
  add(operation, "a pointwise operation");
  return y;
}

GraphMaker::Tensor GraphMaker::matmul(Tensor a, Tensor b, Tensor c) {
  Descriptor& described = make(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
  described.set(CUDNN_ATTR_MATMUL_COMP_TYPE, compute_);
  const Tensor what = finished(described, "a product");
  Descriptor& operation = make(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
  connect(operation, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
  connect(operation, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b);
  connect(operation, CUDNN_ATTR_OPERATION_MATMUL_CDESC, c);
  connect(operation, CUDNN_ATTR_OPERATION_MATMUL_DESC, what);
  add(operation, "a product's operation");
  return c;
}

GraphMaker::Tensor GraphMaker::reduce(cudnnReduceTensorOp_t what, Tensor x, Tensor y) {
  Descriptor& described = make(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
  described.set(CUDNN_ATTR_REDUCTION_OPERATOR, what);
  described.set(CUDNN_ATTR_REDUCTION_COMP_TYPE, compute_);
  const Tensor finished_what = finished(described, "a reduction");
  Descriptor& operation = make(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
  connect(operation, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
  connect(operation, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
  connect(operation, CUDNN_ATTR_OPERATION_REDUCTION_DESC, finished_what);
  add(operation, "a reduction's operation");
  return y;
}

GraphMaker::Tensor GraphMaker::reshape(Tensor x, Tensor y) {
  Descriptor& operation = make(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
  connect(operation, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x);
  connect(operation, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y);
  add(operation, "a reshaping");
  return y;
}

CudnnGraph GraphMaker::finish(const CudnnTarget& target) {
  Descriptor graph(library_, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  if (target.handle) graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, target.handle);
  graph.set_all(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                static_cast<std::int64_t>(operations_.size()), operations_.data());
  if (!graph.try_finalize("a graph of operations")) return {};
  descriptors_.push_back(std::move(graph));
  return {std::move(descriptors_), std::move(ids_)};
}

}  // namespace tandem::cuda
