// Convolutions and their gradients by images. The gradients by kernels are in conv_filter.cc.
#include "ops/onednn/conv_descs.h"
#include "ops/onednn/packing.h"

namespace tandem::onednn {
namespace {

using Forward = dnnl::convolution_forward;
using BackwardInput = dnnl::convolution_backward_data;

struct ConvPlan {
  std::unique_ptr<Executable> main;
  Packing kernel;
};

ConvPlan make_conv_forward(const ConvShape& conv, bool bias) {
  const ConvDescs d(conv);
  const auto desc = describe_forward(d, bias);
  const memory::desc packed = desc.weights_desc();
  ConvPlan plan;
  plan.main.reset(
      bias
          ? new Executable(Forward(desc), desc.scratchpad_desc(),
                           {{DNNL_ARG_SRC, d.x},
                            {DNNL_ARG_WEIGHTS, packed},
                            {DNNL_ARG_DST, d.y},
                            {DNNL_ARG_BIAS, d.bias}})
          : new Executable(Forward(desc), desc.scratchpad_desc(),
                           {{DNNL_ARG_SRC, d.x}, {DNNL_ARG_WEIGHTS, packed}, {DNNL_ARG_DST, d.y}}));
  plan.kernel = Packing(d.kernel, packed);
  return plan;
}

ConvPlan make_conv_backward_input(const ConvShape& conv) {
  const ConvDescs d(conv);
  const auto hint = describe_forward(d, false);
  const auto desc = describe_backward<BackwardInput>(
      attributes(), hint, dnnl::algorithm::convolution_direct, d.x, d.kernel_any, d.y, d.strides,
      d.dilations, d.pad_begin, d.pad_end);
  const memory::desc packed = desc.weights_desc();
  ConvPlan plan;
  plan.main.reset(new Executable(
      BackwardInput(desc), desc.scratchpad_desc(),
      {{DNNL_ARG_DIFF_DST, d.y}, {DNNL_ARG_WEIGHTS, packed}, {DNNL_ARG_DIFF_SRC, d.x}}));
  plan.kernel = Packing(d.kernel, packed);
  return plan;
}

}  // namespace

void conv_forward(KernelContext& context, const ConvShape& conv, const void* x,
                  const TensorView& kernel, const void* bias, void* y) {
  const Use use;
  const auto key = [&] {
    PrimitiveKey key = conv_key(PrimitiveKind::kConvForward, conv);
    key.add(bias != nullptr);
    return key;
  };
  ConvPlan& plan =
      plan_for<ConvPlan>(context, key, [&] { return make_conv_forward(conv, bias != nullptr); });
  const void* packed = plan.kernel.pack(context, kernel);
  if (bias)
    plan.main->run(context, {x, packed, y, bias});
  else
    plan.main->run(context, {x, packed, y});
}

void conv_backward_input(KernelContext& context, const ConvShape& conv, const void* dy,
                         const TensorView& kernel, void* dx) {
  const Use use;
  ConvPlan& plan = plan_for<ConvPlan>(
      context, [&] { return conv_key(PrimitiveKind::kConvInput, conv); },
      [&] { return make_conv_backward_input(conv); });
  plan.main->run(context, {dy, plan.kernel.pack(context, kernel), dx});
}

}  // namespace tandem::onednn
