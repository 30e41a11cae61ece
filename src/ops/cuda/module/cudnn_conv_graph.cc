#include "ops/cuda/module/cudnn_conv_graph.h"

namespace tandem::cuda {
namespace {

// A channels-last tensor.
TensorDescription tensor(std::int64_t id, cudnnDataType_t type, std::int64_t n,
                         std::int64_t channels, std::int64_t rows, std::int64_t columns) {
  return {.id = id,
          .type = type,
          .sizes = {n, channels, rows, columns},
          .strides = {rows * columns * channels, 1, columns * channels, channels}};
}

class ConvMaker {
 public:
  ConvMaker(const CudnnLibrary& library, const CudnnConv& conv, unsigned alignment)
      : conv_(conv),
        description_(describe(conv)),
        graph_(library, alignment, description_.compute) {}

  CudnnGraph make(const CudnnTarget& target) {
    if (conv_.pass == ConvPass::kForward)
      forward();
    else
      backward();
    return graph_.finish(target);
  }

 private:
  using Tensor = GraphMaker::Tensor;

  Tensor make_convolution() {
    Descriptor& made = graph_.make(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    made.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, description_.compute);
    made.set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_CROSS_CORRELATION);
    made.set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, std::int64_t{2});
    made.set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, description_.pads);
    made.set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, description_.pads);
    made.set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, description_.strides);
    made.set(CUDNN_ATTR_CONVOLUTION_DILATIONS, description_.dilations);
    return GraphMaker::finished(made, "a convolution");
  }

  // result = 1 * operation + 0 * previous value.
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

  // A virtual tensor between the convolution and y, in the compute type.
  Tensor between() {
    return graph_.between(description_.compute, description_.y.sizes, description_.y.strides);
  }

  void forward() {
    const bool activation = conv_.activation != nn::Activation::kLinear;
    const Tensor x = graph_.tensor(description_.x), kernel = graph_.tensor(description_.kernel),
                 y = graph_.tensor(description_.y), convolution = make_convolution();
    const Tensor convolved = conv_.bias || activation ? between() : y;
    Descriptor& operation = graph_.make(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
    scale(operation, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA);
    GraphMaker::connect(operation, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, convolution);
    GraphMaker::connect(operation, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, x);
    GraphMaker::connect(operation, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, kernel);
    GraphMaker::connect(operation, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, convolved);
    graph_.add(operation, "a convolution's operation");
    Tensor biased = convolved;
    if (conv_.bias)
      biased =
          graph_.pointwise({CUDNN_POINTWISE_ADD}, {convolved, graph_.tensor(description_.bias)},
                           activation ? between() : y);
    if (activation)
      graph_.pointwise(
          {.mode = CUDNN_POINTWISE_RELU_FWD,
           .upper_clip =
               conv_.activation == nn::Activation::kRelu6 ? std::optional(6.0) : std::nullopt},
          {biased}, y);
  }

  void backward() {
    const bool input = conv_.pass == ConvPass::kBackwardInput;
    const Tensor x = graph_.tensor(description_.x), kernel = graph_.tensor(description_.kernel),
                 y = graph_.tensor(description_.y), convolution = make_convolution();
    Descriptor& operation =
        graph_.make(input ? CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR
                          : CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR);
    scale(operation,
          input ? CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA
                : CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
          input ? CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA
                : CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA);
    GraphMaker::connect(operation,
                        input ? CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC
                              : CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                        convolution);
    GraphMaker::connect(operation,
                        input ? CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX
                              : CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                        x);
    GraphMaker::connect(operation,
                        input ? CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W
                              : CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                        kernel);
    GraphMaker::connect(operation,
                        input ? CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY
                              : CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
                        y);
    graph_.add(operation, "a convolution's gradient");
  }

  const CudnnConv& conv_;
  const ConvDescription description_;
  GraphMaker graph_;
};

}  // namespace

ConvDescription describe(const CudnnConv& conv) {
  const ConvShape& s = conv.shape;
  const cudnnDataType_t type = cudnn_type_of(s.dtype);
  return {.x = tensor(kIdX, type, s.n, s.in, s.h, s.w),
          .kernel = tensor(kIdKernel, type, s.out, s.in / s.groups, s.kh, s.kw),
          .y = tensor(kIdY, type, s.n, s.out, s.oh, s.ow),
          .bias = tensor(kIdBias, type, 1, s.out, 1, 1),
          .pads = {s.pad_top, s.pad_left},
          .strides = {s.stride_h, s.stride_w},
          .dilations = {s.dilation_h, s.dilation_w},
          .compute = s.dtype == float64 ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT};
}

CudnnGraph make_graph(const CudnnLibrary& library, const CudnnTarget& target, const CudnnConv& conv,
                      unsigned alignment) {
  return ConvMaker(library, conv, alignment).make(target);
}

}  // namespace tandem::cuda
