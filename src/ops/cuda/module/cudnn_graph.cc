#include "ops/cuda/module/cudnn_graph.h"

#include "core/status.h"

namespace tandem::cuda {
namespace {

cudnnDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat64: return CUDNN_DATA_DOUBLE;
    case DType::kFloat16: return CUDNN_DATA_HALF;
    case DType::kBFloat16: return CUDNN_DATA_BFLOAT16;
    default: return CUDNN_DATA_FLOAT;
  }
}

constexpr cudnnNanPropagation_t kPropagateNan = CUDNN_PROPAGATE_NAN;

// Channels last.
TensorDescription tensor(std::int64_t id, cudnnDataType_t type, std::int64_t n,
                         std::int64_t channels, std::int64_t rows, std::int64_t columns) {
  return {.id = id,
          .type = type,
          .sizes = {n, channels, rows, columns},
          .strides = {rows * columns * channels, 1, columns * channels, channels}};
}

// The descriptors of a graph in the making.
class GraphMaker {
 public:
  GraphMaker(const CudnnLibrary& library, const CudnnConv& conv, unsigned alignment)
      : library_(library), conv_(conv), description_(describe(conv)), alignment_(alignment) {}

  std::vector<Descriptor> make(cudnnHandle_t handle) {
    if (conv_.pass == ConvPass::kForward)
      forward();
    else
      backward();
    Descriptor graph(library_, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    if (handle) graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, handle);
    graph.set_all(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                  static_cast<std::int64_t>(operations_.size()), operations_.data());
    if (!graph.try_finalize("a graph of operations")) return {};
    made_.push_back(std::move(graph));
    return std::move(made_);
  }

 private:
  Descriptor& make(cudnnBackendDescriptorType_t type) { return made_.emplace_back(library_, type); }
  cudnnBackendDescriptor_t finished(Descriptor& descriptor, const char* what) {
    descriptor.finalize(what);
    return descriptor.raw();
  }
  void add_operation(Descriptor& operation, const char* what) {
    operations_.push_back(finished(operation, what));
  }

  cudnnBackendDescriptor_t make(const TensorDescription& of) {
    Descriptor& made = make(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    made.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, of.id);
    made.set(CUDNN_ATTR_TENSOR_DATA_TYPE, of.type);
    made.set(CUDNN_ATTR_TENSOR_DIMENSIONS, of.sizes);
    made.set(CUDNN_ATTR_TENSOR_STRIDES, of.strides);
    made.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, std::int64_t{alignment_});
    if (of.is_virtual) made.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, true);
    return finished(made, "a tensor");
  }

  cudnnBackendDescriptor_t make_convolution() {
    Descriptor& made = make(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    made.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, description_.compute);
    made.set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_CROSS_CORRELATION);
    made.set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, std::int64_t{2});
    made.set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, description_.pads_before);
    made.set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, description_.pads_after);
    made.set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, description_.strides);
    made.set(CUDNN_ATTR_CONVOLUTION_DILATIONS, description_.dilations);
    return finished(made, "a convolution");
  }

  static void connect(Descriptor& operation, cudnnBackendAttributeName_t name,
                      cudnnBackendDescriptor_t to) {
    operation.set_all(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &to);
  }

  // result = 1 * operation + 0 * what was there.
  void scale(Descriptor& operation, cudnnBackendAttributeName_t alpha,
             cudnnBackendAttributeName_t beta) const {
    if (description_.compute == CUDNN_DATA_DOUBLE) {
      operation.set(alpha, 1.0);
      operation.set(beta, 0.0);
    } else {
      operation.set(alpha, 1.0f);
      operation.set(beta, 0.0f);
    }
  }

  // What comes between the convolution and y is of the type of sums.
  TensorDescription between(std::int64_t id) const {
    TensorDescription made = description_.y;
    made.id = id;
    made.type = description_.compute;
    made.is_virtual = true;
    return made;
  }

  void forward() {
    const bool activation = conv_.activation != nn::Activation::kLinear;
    const cudnnBackendDescriptor_t x = make(description_.x), kernel = make(description_.kernel),
                                   y = make(description_.y), convolution = make_convolution();
    const cudnnBackendDescriptor_t convolved =
        conv_.bias || activation ? make(between(kIdConvolved)) : y;
    Descriptor& operation = make(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
    scale(operation, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA);
    connect(operation, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, convolution);
    connect(operation, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, x);
    connect(operation, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, kernel);
    connect(operation, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, convolved);
    add_operation(operation, "a convolution's operation");
    cudnnBackendDescriptor_t biased = convolved;
    if (conv_.bias) {
      biased = activation ? make(between(kIdBiased)) : y;
      pointwise(CUDNN_POINTWISE_ADD, convolved, make(description_.bias), biased);
    }
    if (activation) pointwise(CUDNN_POINTWISE_RELU_FWD, biased, nullptr, y);
  }

  void pointwise(cudnnPointwiseMode_t mode, cudnnBackendDescriptor_t x, cudnnBackendDescriptor_t b,
                 cudnnBackendDescriptor_t y) {
    Descriptor& what = make(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    what.set(CUDNN_ATTR_POINTWISE_MODE, mode);
    what.set(CUDNN_ATTR_POINTWISE_MATH_PREC, description_.compute);
    if (mode == CUDNN_POINTWISE_RELU_FWD)  // a computation that has gone wrong is seen
      what.set_all(CUDNN_ATTR_POINTWISE_NAN_PROPAGATION, CUDNN_TYPE_NAN_PROPOGATION, 1,
                   &kPropagateNan);
    if (mode == CUDNN_POINTWISE_RELU_FWD && conv_.activation == nn::Activation::kRelu6)
      what.set(CUDNN_ATTR_POINTWISE_RELU_UPPER_CLIP, 6.0);
    const cudnnBackendDescriptor_t finished_what = finished(what, "a pointwise operation");
    Descriptor& operation = make(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    connect(operation, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, finished_what);
    connect(operation, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    if (b) connect(operation, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b);
    connect(operation, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    add_operation(operation, "a pointwise operation");
  }

  void backward() {
    const bool input = conv_.pass == ConvPass::kBackwardInput;
    const cudnnBackendDescriptor_t x = make(description_.x), kernel = make(description_.kernel),
                                   y = make(description_.y), convolution = make_convolution();
    Descriptor& operation =
        make(input ? CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR
                   : CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR);
    scale(operation,
          input ? CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA
                : CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
          input ? CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA
                : CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA);
    connect(operation,
            input ? CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC
                  : CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
            convolution);
    connect(operation,
            input ? CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX
                  : CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
            x);
    connect(operation,
            input ? CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W
                  : CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
            kernel);
    connect(operation,
            input ? CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY
                  : CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
            y);
    add_operation(operation, "a convolution's gradient");
  }

  const CudnnLibrary& library_;
  const CudnnConv& conv_;
  const ConvDescription description_;
  const unsigned alignment_;
  std::vector<Descriptor> made_;
  std::vector<cudnnBackendDescriptor_t> operations_;
};

}  // namespace

ConvDescription describe(const CudnnConv& conv) {
  const ConvShape& s = conv.shape;
  const cudnnDataType_t type = type_of(s.dtype);
  return {.x = tensor(kIdX, type, s.n, s.in, s.h, s.w),
          .kernel = tensor(kIdKernel, type, s.out, s.in / s.groups, s.kh, s.kw),
          .y = tensor(kIdY, type, s.n, s.out, s.oh, s.ow),
          .bias = tensor(kIdBias, type, 1, s.out, 1, 1),
          .pads_before = {s.pad_top, s.pad_left},
          .pads_after = {s.pad_bottom, s.pad_right},
          .strides = {s.stride_h, s.stride_w},
          .dilations = {s.dilation_h, s.dilation_w},
          .compute = s.dtype == float64 ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT};
}

Descriptor::Descriptor(const CudnnLibrary& library, cudnnBackendDescriptorType_t type)
    : library_(&library) {
  check_cudnn(library, library.create_descriptor(type, &raw_), "cudnnBackendCreateDescriptor");
}

Descriptor::~Descriptor() {
  if (raw_) library_->destroy_descriptor(raw_);
}

void Descriptor::set_all(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                         std::int64_t count, const void* values) {
  const cudnnStatus_t status = library_->set_attribute(raw_, name, type, count, values);
  if (status != CUDNN_STATUS_SUCCESS) [[unlikely]]
    check_cudnn(*library_, status,
                fmt::format("attribute {} of cuDNN", static_cast<int>(name)).c_str());
}

std::int64_t Descriptor::get(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                             std::int64_t count, void* values) const {
  std::int64_t found = 0;
  const cudnnStatus_t status = library_->get_attribute(raw_, name, type, count, &found, values);
  if (status != CUDNN_STATUS_SUCCESS) [[unlikely]]
    check_cudnn(*library_, status,
                fmt::format("attribute {} of cuDNN", static_cast<int>(name)).c_str());
  return found;
}

void Descriptor::finalize(const char* what) {
  check_cudnn(*library_, library_->finalize(raw_), what);
}

bool Descriptor::try_finalize(const char* what) {
  const cudnnStatus_t status = library_->finalize(raw_);
  if (is_refusal(status)) return false;
  check_cudnn(*library_, status, what);
  return true;
}

std::vector<Descriptor> make_graph(const CudnnLibrary& library, const CudnnTarget& target,
                                   const CudnnConv& conv, unsigned alignment) {
  return GraphMaker(library, conv, alignment).make(target.handle);
}

}  // namespace tandem::cuda
