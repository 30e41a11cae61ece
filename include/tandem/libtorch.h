/// @file
/// Programs for libtorch: include this header in place of torch/torch.h, and write
/// `namespace torch = tandem::libtorch;`. Not part of tandem/tandem.h.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <tuple>
#include <utility>

#include "tandem/tandem.h"

/// All of Tandem, with libtorch's meaning of the names that mean something else in tandem.
namespace tandem::libtorch {

using namespace tandem;

/// As torch::data.
namespace data {

using namespace tandem::data;
/// As torch::data::Example: `data` and `target`.
template <std::same_as<Tensor> Data = Tensor, std::same_as<Tensor> Target = Tensor>
using Example = LoadedExample;
/// As torch::data::datasets.
namespace datasets {
using namespace tandem::data::datasets;
/// As torch::data::datasets::Dataset.
template <class Self, class SingleExample = LoadedExample>
using Dataset = tandem::data::datasets::Dataset<Self, SingleExample>;
}  // namespace datasets
using datasets::Dataset;  ///< as datasets::Dataset

}  // namespace data

/// As torch::nn.
namespace nn {

using namespace tandem::nn;
/// As torch::nn::Module: forward() has any arguments and results.
using Module = ModuleBase;
/// The handle that TORCH_MODULE makes: constructed as its module, or from nullptr. For that macro.
template <std::derived_from<ModuleBase> Impl>
class MadeModule : public ModuleHolder<Impl> {
 public:
  /// A module with these arguments.
  template <class... Args>
  requires std::constructible_from<Impl, Args...>
  explicit MadeModule(Args&&... args)
      : ModuleHolder<Impl>(std::make_shared<Impl>(std::forward<Args>(args)...)) {}
  /// A handle to this module.
  explicit MadeModule(std::shared_ptr<Impl> impl) : ModuleHolder<Impl>(std::move(impl)) {}
  /// An empty handle: from nullptr.
  template <std::same_as<std::nullptr_t> Null>
  MadeModule(Null) {}  // NOLINT: nullptr stands for it
};

/// The sizes of a module and its other arguments, set one after another: a module is made of them,
/// `Linear(LinearOptions(4, 8).bias(false))`. As the options of torch::nn.
template <class Module, class Arguments, class... Sizes>
class ModuleOptions {
 public:
  explicit ModuleOptions(Sizes... sizes) : sizes_(std::move(sizes)...) {}  ///< with these sizes
  /// With the first of the other arguments, if there are no sizes.
  template <std::floating_point Value>
  requires(sizeof...(Sizes) == 0) explicit ModuleOptions(Value value) : arguments_{value} {}
/// @{
/// Sets the argument of this name, if the module has it.
#define TANDEM_SETTER(name)                                                  \
  template <class Value>                                                     \
  requires requires(Arguments & to, const Value& value) { to.name = value; } \
  ModuleOptions& name(const Value& value) {                                  \
    arguments_.name = value;                                                 \
    return *this;                                                            \
  }
  TANDEM_SETTER(stride)
  TANDEM_SETTER(padding)
  TANDEM_SETTER(output_padding)
  TANDEM_SETTER(dilation)
  TANDEM_SETTER(groups)
  TANDEM_SETTER(bias)
  TANDEM_SETTER(padding_mode)
  TANDEM_SETTER(ceil_mode)
  TANDEM_SETTER(count_include_pad)
  TANDEM_SETTER(divisor_override)
  TANDEM_SETTER(eps)
  TANDEM_SETTER(momentum)
  TANDEM_SETTER(affine)
  TANDEM_SETTER(elementwise_affine)
  TANDEM_SETTER(negative_slope)
  TANDEM_SETTER(p)
  TANDEM_SETTER(inplace)
#undef TANDEM_SETTER
  /// @}
  /// The module.
  operator Module() const {  // NOLINT: the options stand for it
    return std::apply(
        [this](const auto&... sizes) {
          if constexpr (std::constructible_from<Module, Sizes..., Arguments>)
            return Module(sizes..., arguments_);
          else
            return Module(sizes..., arguments_.value());
        },
        sizes_);
  }

 private:
  std::tuple<Sizes...> sizes_;
  Arguments arguments_;
};
/// For ModuleOptions: the arguments of LeakyReLU.
class LeakyReLUArguments {
 public:
  double negative_slope = 0.01;                    ///< factor of negative elements
  bool inplace = false;                            ///< no effect: inputs do not change
  double value() const { return negative_slope; }  ///< the argument of the constructor
};
/// For ModuleOptions: the arguments of Dropout.
class DropoutArguments {
 public:
  double p = 0.5;                     ///< part of the elements that is dropped
  bool inplace = false;               ///< no effect: inputs do not change
  double value() const { return p; }  ///< the argument of the constructor
};
/// @{
/// The arguments of the modules of these names.
using LinearOptions = ModuleOptions<Linear, tandem::nn::LinearOptions, std::int64_t, std::int64_t>;
using Conv1dOptions =
    ModuleOptions<Conv1d, Conv1dArguments, std::int64_t, std::int64_t, std::int64_t>;
using Conv3dOptions = ModuleOptions<Conv3d, Conv3dArguments, std::int64_t, std::int64_t, Triple>;
using ConvTranspose1dOptions = ModuleOptions<ConvTranspose1d, ConvTranspose1dArguments,
                                             std::int64_t, std::int64_t, std::int64_t>;
using ConvTranspose2dOptions =
    ModuleOptions<ConvTranspose2d, ConvTranspose2dArguments, std::int64_t, std::int64_t, Pair>;
using MaxPool2dOptions = ModuleOptions<MaxPool2d, MaxPool2dArguments, Pair>;
using AvgPool2dOptions = ModuleOptions<AvgPool2d, AvgPool2dArguments, Pair>;
using BatchNorm1dOptions = ModuleOptions<BatchNorm1d, BatchNormOptions, std::int64_t>;
using BatchNorm2dOptions = ModuleOptions<BatchNorm2d, BatchNormOptions, std::int64_t>;
using GroupNormOptions =
    ModuleOptions<GroupNorm, tandem::nn::GroupNormOptions, std::int64_t, std::int64_t>;
using LeakyReLUOptions = ModuleOptions<LeakyReLU, LeakyReLUArguments>;
using DropoutOptions = ModuleOptions<Dropout, DropoutArguments>;
/// @}

}  // namespace nn
}  // namespace tandem::libtorch

#ifndef TORCH_MODULE
/// Declares `Name`, a handle to modules of the class `NameImpl`. As that of libtorch.
#define TORCH_MODULE(Name)                                             \
  class Name : public ::tandem::libtorch::nn::MadeModule<Name##Impl> { \
   public:                                                             \
    using ::tandem::libtorch::nn::MadeModule<Name##Impl>::MadeModule;  \
  }
#endif
