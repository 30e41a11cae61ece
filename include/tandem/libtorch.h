/// @file
/// Programs for libtorch: include this header in place of torch/torch.h, and write
/// `namespace torch = tandem::libtorch;`. Not part of tandem/tandem.h.
#pragma once

#include <concepts>
#include <cstddef>
#include <memory>
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
