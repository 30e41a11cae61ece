// Layers and loss objects. The tensors of a call are a layer's inputs, then its variables' values.
#include <tandem/convolution_layers.h>
#include <sstream>

#include "operations.h"

namespace check_operations {
namespace {

namespace layer = td::layers;

// A layer that `make(call, dtype)` makes. Layers are kept, because a trace cannot make variables.
template <class F>
Operation layer_of(std::size_t inputs, F make) {
  return [=](const Call& c) -> Tensors {
    const std::size_t count = c.has("inputs") ? std::size_t(c.integer("inputs")) : inputs;
    const Tensors arguments(c.x.begin(), c.x.begin() + std::ptrdiff_t(count));
    td::DType dtype = td::float32;
    std::ostringstream key;
    key << c.attributes;
    for (const td::Tensor& tensor : c.x) {
      key << tensor.dtype() << tensor.shape();
      if (td::is_floating(tensor.dtype())) dtype = tensor.dtype();
    }
    static std::map<std::string, td::Layer> made;
    auto found = made.find(key.str());
    if (found == made.end())
      found =
          made.emplace(key.str(), make(c, td::DTypePolicy(std::string(td::name_of(dtype))))).first;
    const td::Layer& layer = found->second;
    const td::CallOptions options{.training = c.flag("training")};
    if (layer.variables().empty()) (void)layer(arguments, options);  // makes them
    std::size_t next = count;
    for (td::Variable variable : layer.variables())
      if (next < c.x.size()) variable.assign(c.x[next++]);
    return {layer(arguments, options)};
  };
}

td::losses::Loss loss_named(const Call& c) {
  namespace losses = td::losses;
  const auto reduction =
      c.text("reduction") == "sum" ? losses::Reduction::kSum : losses::Reduction::kSumOverBatchSize;
  const std::string name = c.text("loss");
  if (name == "mse") return losses::MeanSquaredError({.reduction = reduction});
  if (name == "mae") return losses::MeanAbsoluteError({.reduction = reduction});
  if (name == "huber") return losses::Huber({.delta = c.number("delta"), .reduction = reduction});
  if (name == "bce") return losses::BinaryCrossentropy({.reduction = reduction});
  if (name == "bce_logits")
    return losses::BinaryCrossentropy({.from_logits = true, .reduction = reduction});
  if (name == "kl") return losses::KLDivergence({.reduction = reduction});
  return losses::SparseCategoricalCrossentropy({.from_logits = true, .reduction = reduction});
}

}  // namespace

std::map<std::string, Operation> layers() {
  using Policy = td::DTypePolicy;
  return {
      {"Activation", layer_of(1,
                              [](const Call& c, Policy dtype) {
                                return layer::Activation(c.text("activation"), {.dtype = dtype});
                              })},
      {"Dense", layer_of(1,
                         [](const Call& c, Policy dtype) {
                           return layer::Dense(c.x[1].dim(1),
                                               {.use_bias = c.x.size() > 2, .dtype = dtype});
                         })},
      {"Conv2D", layer_of(1,
                          [](const Call& c, Policy dtype) {
                            const td::Tensor& kernel = c.x[1];
                            return layer::Conv2D(kernel.dim(3), {kernel.dim(0), kernel.dim(1)},
                                                 {.strides = c.pair("strides"),
                                                  .padding = padding_of(c),
                                                  .dilation_rate = c.pair("dilations"),
                                                  .groups = c.integer("groups"),
                                                  .use_bias = c.x.size() > 2,
                                                  .dtype = dtype});
                          })},
      {"BatchNormalization", layer_of(1,
                                      [](const Call& c, Policy dtype) {
                                        return layer::BatchNormalization(
                                            {.epsilon = c.number("epsilon"),
                                             .center = c.flag("affine"),
                                             .scale = c.flag("affine"),
                                             .dtype = dtype});
                                      })},
      {"LayerNormalization", layer_of(1,
                                      [](const Call& c, Policy dtype) {
                                        return layer::LayerNormalization(
                                            {.epsilon = c.number("epsilon"),
                                             .center = c.flag("center"),
                                             .scale = c.flag("scale"),
                                             .dtype = dtype});
                                      })},
      {"Embedding", layer_of(1,
                             [](const Call& c, Policy dtype) {
                               return layer::Embedding(c.x[1].dim(0), c.x[1].dim(1),
                                                       {.dtype = dtype});
                             })},
      {"ZeroPadding2D", layer_of(1,
                                 [](const Call& c, Policy dtype) {
                                   return layer::ZeroPadding2D(c.pair("pad"), {.dtype = dtype});
                                 })},
      {"MultiHeadAttention", layer_of(3,
                                      [](const Call& c, Policy dtype) {
                                        return layer::MultiHeadAttention(
                                            c.integer("heads"), c.integer("depth"),
                                            {.use_bias = c.flag("bias"), .dtype = dtype});
                                      })},
      {"Loss", [](const Call& c) -> Tensors { return {loss_named(c)(c.x[0], c.x[1])}; }},
  };
}

}  // namespace check_operations
