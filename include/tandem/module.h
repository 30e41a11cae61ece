/// @file
/// Modules: layers whose parameters exist when they are made, with PyTorch's names. As torch.nn.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "tandem/layers.h"
#include "tandem/removable_handle.h"
#include "tandem/tensor.h"
#include "tandem/variable.h"

namespace tandem::nn {

/// For Tandem's own code: a template, so that the conversion is refused where it is used.
template <class Unused>
class ParameterOf : public Variable {
 public:
  /// The variable.
  explicit ParameterOf(Variable variable) : Variable(std::move(variable)) {}
  /// Does not compile: a td::Tensor would keep the value that the parameter has now.
  operator Tensor() const {
    static_assert(tandem::detail::kNever<Unused>,
                  "a td::Tensor would keep the value that the parameter has now: declare the "
                  "member as a td::Variable");
    return value();
  }
};
/// The result of Module::register_parameter(): keep it in a td::Variable.
using Parameter = ParameterOf<void>;

using tandem::RemovableHandle;

/// Base class of all modules, which has parts, parameters and a mode. Derive from Module, or from
/// this class if forward() has another result than a Tensor: a std::tuple, std::pair or struct of
/// tensors. Your program calls forward() by its name, or through a ModuleHolder. As
/// torch::nn::Module.
/// @code
/// struct ActorCritic : td::nn::ModuleBase {
///   ActorCritic() { ... }
///   std::tuple<td::Tensor, td::Tensor> forward(const td::Tensor& x) {
///     return {actor(body(x)), critic(body(x))};
///   }
///   td::nn::Linear body{nullptr}, actor{nullptr}, critic{nullptr};
/// };
/// ActorCritic net;
/// auto [logits, value] = net.forward(x);
/// @endcode
///
/// A new module is in training mode, as in PyTorch. Copies share parameters, child modules and
/// mode. Where a td::Layer is expected, as in td::Model(net), calls run forward(), which then takes
/// one tensor or two and returns one; a forward() of another form throws UnimplementedError there.
class ModuleBase : public LayerBase {
 public:
  ModuleBase();                           ///< a module without a name of its own
  explicit ModuleBase(std::string name);  ///< a module of this name
  /// @{
  /// Copies share parameters, child modules and mode.
  ModuleBase(const ModuleBase& other) : LayerBase(other), members_(other.members_) {}
  ModuleBase& operator=(const ModuleBase& other);
  /// @}

  /// Makes a part a child of this module: a module such as nn::Linear, a std::shared_ptr of a
  /// module, or a layer or model. Returns it. Throws InvalidArgumentError for an empty name, one
  /// with '.' or '/', and one that is taken.
  template <std::convertible_to<Layer> M>
  M register_module(const std::string& name, M module) {
    add_child(name, Layer(module));
    return module;
  }
  /// Makes a parameter with this value. Keep it in a member of type td::Variable.
  Parameter register_parameter(const std::string& name, const Tensor& value,
                               bool requires_grad = true);
  /// Makes a variable that training does not update, such as a moving average.
  Parameter register_buffer(const std::string& name, const Tensor& value);

  /// The parameters of the module and its children that training updates. Throws
  /// FailedPreconditionError if a child is a layer that is not built.
  std::vector<Variable> parameters() const;
  /// All variables with their names: "fc1.weight". As torch.nn.Module.state_dict.
  std::vector<std::pair<std::string, Variable>> named_variables() const override;
  void train(bool on = true) { set_training(on); }                 ///< sets the mode
  void eval() { set_training(false); }                             ///< train(false)
  bool is_training() const { return default_options().training; }  ///< the mode
  void zero_grad();  ///< clears the gradients of parameters()

  /// @{
  /// Checks that all variables are on this device, or of this dtype, and returns the module. Throws
  /// UnimplementedError otherwise: a module's variables stay where they were made; make it under
  /// td::DeviceScope. As torch.nn.Module.to, which moves them.
  ModuleBase& to(std::string_view device);
  ModuleBase& to(DType dtype);
  template <std::same_as<DeviceType> Type>
  ModuleBase& to(Type type) {
    return to(std::string_view(Device(type).name()));
  }
  /// @}

  std::string kind() const override;             ///< the name of the class in snake case
  std::vector<Layer> children() const override;  ///< the registered modules
  /// The registered modules with their names. As torch.nn.Module.named_children.
  std::vector<std::pair<std::string, Layer>> named_children() const;
  void build(std::span<const Shape>) final {}  ///< does nothing
  /// Calls forward().
  Tensor call(std::span<const Tensor> inputs, const CallOptions& options) final;
  /// The shape of forward()'s result for zeros.
  Shape output_shape(std::span<const Shape> input_shapes) const final;

  /// For Tandem's own code: makes call() run the forward() of the class.
  template <class M>
  static void bind_forward(M& module) {
    ModuleBase& base = module;
    if constexpr (requires(const Tensor& x) {
                    { module.forward(x) } -> std::convertible_to<Tensor>;
                  }) {
      base.arity_ = 1;
      base.forward_ = [&module](TensorList inputs) -> Tensor { return module.forward(inputs[0]); };
    } else if constexpr (requires(const Tensor& x) {
                           { module.forward(x, x) } -> std::convertible_to<Tensor>;
                         }) {
      base.arity_ = 2;
      base.forward_ = [&module](TensorList inputs) -> Tensor {
        return module.forward(inputs[0], inputs[1]);
      };
    }
  }

  /// For Tandem's own code: the output after the hooks.
  Tensor after_hooks(const Tensor& input, Tensor output) const;

 protected:
  /// For Tandem's own code.
  using ForwardHook =
      std::function<Tensor(const ModuleBase& module, const Tensor& input, const Tensor& output)>;
  RemovableHandle add_hook(ForwardHook hook);  ///< for Tandem's own code

 private:
  struct Members;
  void add_child(const std::string& name, const Layer& child);

  std::shared_ptr<Members> members_;
  std::function<Tensor(TensorList)> forward_;  // of this object; copies do not have it
  std::size_t arity_ = 0;
};

/// Base class of your own modules: register the parts in the constructor, compute in forward(). As
/// torch::nn::Module.
/// @code
/// struct Net : td::nn::Module {
///   Net() {
///     fc1 = register_module("fc1", td::nn::Linear(784, 64));
///     fc2 = register_module("fc2", td::nn::Linear(64, 10));
///   }
///   td::Tensor forward(td::Tensor x) { return fc2(td::nn::relu(fc1(x))); }
///   td::nn::Linear fc1{nullptr}, fc2{nullptr};
/// };
/// Net net;
/// td::optimizers::SGD optimizer({.learning_rate = 0.1}, net.parameters());
/// td::Tensor y = net(x);
/// @endcode
///
/// A forward() of one or two tensors returns a Tensor; if yours returns something else, derive from
/// ModuleBase.
class Module : public ModuleBase {
 public:
  using ModuleBase::ModuleBase;
  /// @{
  /// The result of the module, which your class computes in one of these; `override` may be left
  /// out. The default throws UnimplementedError.
  virtual Tensor forward(const Tensor& x);                   // another result: nn::ModuleBase
  virtual Tensor forward(Tensor x);                          // another result: nn::ModuleBase
  virtual Tensor forward(const Tensor& x) const;             // another result: nn::ModuleBase
  virtual Tensor forward(const Tensor& a, const Tensor& b);  // another result: nn::ModuleBase
  virtual Tensor forward(Tensor a, Tensor b);                // another result: nn::ModuleBase
  /// @}
  /// @{
  /// Calls forward(), and then the hooks. As torch.nn.Module.__call__.
  Tensor operator()(const Tensor& x);
  Tensor operator()(const Tensor& a, const Tensor& b);
  /// @}
  /// Calls `hook(module, input, output)` after each call of the module, but not after
  /// module.forward(). A hook that returns a defined tensor replaces the output. It gets the
  /// first of two inputs. Copies of the module share the hooks. As
  /// torch.nn.Module.register_forward_hook.
  template <class Hook>
  RemovableHandle register_forward_hook(Hook hook) {
    return add_hook([hook = std::move(hook)](const ModuleBase& base, const Tensor& input,
                                             const Tensor& output) mutable {
      // The hook may take the module as one that it can change.
      auto& module = const_cast<Module&>(static_cast<const Module&>(base));
      if constexpr (std::is_void_v<
                        std::invoke_result_t<Hook&, Module&, const Tensor&, const Tensor&>>) {
        hook(module, input, output);
        return Tensor();
      } else {
        return Tensor(hook(module, input, output));
      }
    });
  }
};

/// A shared handle to a module, as torch::nn::ModuleHolder: `fc->forward(x)` or `fc(x)`.
template <std::derived_from<ModuleBase> Impl>
class ModuleHolder {
 public:
  ModuleHolder() = default;  ///< an empty handle, to be assigned
  /// The same: from nullptr.
  template <std::same_as<std::nullptr_t> Null>
  ModuleHolder(Null) {}  // NOLINT: nullptr stands for it
  /// A handle to this module.
  explicit ModuleHolder(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

  /// @{
  /// The module. Throws FailedPreconditionError for an empty handle.
  Impl* operator->() const { return &**this; }
  Impl& operator*() const {
    if (!impl_) refuse_empty();
    return *impl_;
  }
  /// @}
  const std::shared_ptr<Impl>& ptr() const { return impl_; }  ///< the pointer
  bool is_empty() const { return impl_ == nullptr; }          ///< whether there is no module
  explicit operator bool() const { return !is_empty(); }      ///< whether there is a module
  /// Calls forward(), and then the hooks.
  template <class... Args>
  auto operator()(Args&&... args) const {
    using Result = decltype((*this)->forward(std::forward<Args>(args)...));
    if constexpr (std::same_as<Result, Tensor> && (std::convertible_to<Args, Tensor> && ...) &&
                  sizeof...(Args) > 0) {
      const Tensor inputs[] = {args...};
      return (*this)->after_hooks(inputs[0], (*this)->forward(std::forward<Args>(args)...));
    } else {
      return (*this)->forward(std::forward<Args>(args)...);
    }
  }
  /// @{
  /// As those of the module, which PyTorch's programs call by a dot.
  std::vector<Variable> parameters() const { return (*this)->parameters(); }
  auto named_parameters() const { return (*this)->named_parameters(); }
  auto state_dict() const { return (*this)->state_dict(); }
  void load_state_dict(const std::map<std::string, Tensor>& state) const {
    (*this)->load_state_dict(state);
  }
  void train(bool on = true) const { (*this)->train(on); }
  void eval() const { (*this)->eval(); }
  bool is_training() const { return (*this)->is_training(); }
  void zero_grad() const { (*this)->zero_grad(); }
  /// @}
  /// As Module::register_forward_hook().
  template <class Hook>
  RemovableHandle register_forward_hook(Hook hook) const {
    return (*this)->register_forward_hook(std::move(hook));
  }
  /// The module as a layer.
  operator Layer() const { return Layer(impl_); }  // NOLINT: a module is a layer

 private:
  [[noreturn]] static void refuse_empty();

  std::shared_ptr<Impl> impl_;
};

/// For Tandem's own code.
[[noreturn]] void refuse_empty_module();

template <std::derived_from<ModuleBase> Impl>
void ModuleHolder<Impl>::refuse_empty() {
  refuse_empty_module();
}

/// Options of Linear. As the arguments of torch.nn.Linear.
struct LinearOptions {
  bool bias = true;  ///< whether to add a bias
};
/// The module of Linear.
class LinearImpl : public Module {
 public:
  /// As Linear.
  LinearImpl(std::int64_t in_features, std::int64_t out_features, const LinearOptions& options);
  /// x . weight^T + bias over the last axis.
  Tensor forward(const Tensor& input) const override;

  Variable weight;  ///< [out_features, in_features]
  Variable bias;    ///< [out_features]; undefined without a bias
};
/// Fully connected module. The weight is [out, in], and both start uniform in +-1 / sqrt(in), as in
/// PyTorch; layers::Dense has a kernel [in, out]. As torch.nn.Linear.
class Linear : public ModuleHolder<LinearImpl> {
 public:
  using ModuleHolder::ModuleHolder;
  Linear() = default;  ///< an empty handle, to be assigned
  /// A handle to this module.
  explicit Linear(std::shared_ptr<LinearImpl> impl)
      : ModuleHolder(std::move(impl)), weight((*this)->weight), bias((*this)->bias) {}
  /// A module that maps `in_features` to `out_features`.
  Linear(std::int64_t in_features, std::int64_t out_features, const LinearOptions& options = {});
  /// The same with `bias` as an argument.
  template <std::same_as<bool> Bias>
  Linear(std::int64_t in_features, std::int64_t out_features, Bias bias)
      : Linear(in_features, out_features, LinearOptions{.bias = bias}) {}

  Variable weight;  ///< that of the module
  Variable bias;    ///< that of the module
};

/// A module without parameters that applies a function.
class FunctionModule : public Module {
 public:
  /// `kind`: as Module::kind().
  FunctionModule(std::string kind, std::function<Tensor(const Tensor&)> function)
      : kind_(std::move(kind)), function_(std::move(function)) {}
  /// Applies the function.
  Tensor forward(const Tensor& input) const override { return function_(input); }
  std::string kind() const override { return kind_; }

 private:
  std::string kind_;
  std::function<Tensor(const Tensor&)> function_;
};
/// Max(x, 0). As torch.nn.ReLU.
class ReLU : public ModuleHolder<FunctionModule> {
 public:
  using ModuleHolder::ModuleHolder;
  ReLU();  ///< a module
};
/// x if x > 0, else negative_slope * x. As torch.nn.LeakyReLU.
class LeakyReLU : public ModuleHolder<FunctionModule> {
 public:
  using ModuleHolder::ModuleHolder;
  explicit LeakyReLU(double negative_slope = 0.01);  ///< a module
};
/// x if x > 0, else alpha * (exp(x) - 1). As torch.nn.ELU.
class ELU : public ModuleHolder<FunctionModule> {
 public:
  using ModuleHolder::ModuleHolder;
  explicit ELU(double alpha = 1.0);  ///< a module
};
/// functional::gelu(). As torch.nn.GELU.
class GELU : public ModuleHolder<FunctionModule> {
 public:
  using ModuleHolder::ModuleHolder;
  explicit GELU(const std::string& approximate = "none");  ///< a module
};
/// x * sigmoid(x). As torch.nn.SiLU.
class SiLU : public ModuleHolder<FunctionModule> {
 public:
  using ModuleHolder::ModuleHolder;
  SiLU();  ///< a module
};
/// 1 / (1 + exp(-x)). As torch.nn.Sigmoid.
class Sigmoid : public ModuleHolder<FunctionModule> {
 public:
  using ModuleHolder::ModuleHolder;
  Sigmoid();  ///< a module
};
/// Hyperbolic tangent. As torch.nn.Tanh.
class Tanh : public ModuleHolder<FunctionModule> {
 public:
  using ModuleHolder::ModuleHolder;
  Tanh();  ///< a module
};
/// functional::softplus(). As torch.nn.Softplus.
class Softplus : public ModuleHolder<FunctionModule> {
 public:
  using ModuleHolder::ModuleHolder;
  explicit Softplus(double beta = 1.0, double threshold = 20.0);  ///< a module
};
/// x. As torch.nn.Identity.
class Identity : public ModuleHolder<FunctionModule> {
 public:
  using ModuleHolder::ModuleHolder;
  Identity();  ///< a module
};
/// Softmax along the axis `dim`. As torch.nn.Softmax.
class Softmax : public ModuleHolder<FunctionModule> {
 public:
  using ModuleHolder::ModuleHolder;
  explicit Softmax(std::int64_t dim);  ///< a module
};
/// Log(softmax(x)) along the axis `dim`. As torch.nn.LogSoftmax.
class LogSoftmax : public ModuleHolder<FunctionModule> {
 public:
  using ModuleHolder::ModuleHolder;
  explicit LogSoftmax(std::int64_t dim);  ///< a module
};
/// Flattens all axes from `start_dim` on. As torch.nn.Flatten.
class Flatten : public ModuleHolder<FunctionModule> {
 public:
  using ModuleHolder::ModuleHolder;
  explicit Flatten(std::int64_t start_dim = 1);  ///< a module
};

/// The module of Dropout.
class DropoutImpl : public Module {
 public:
  explicit DropoutImpl(double p);                      ///< as Dropout
  Tensor forward(const Tensor& input) const override;  ///< drops elements in training mode

 private:
  double p_;
};
/// Zeroes inputs with probability `p` in training and scales the others by 1 / (1 - p). As
/// torch.nn.Dropout.
class Dropout : public ModuleHolder<DropoutImpl> {
 public:
  using ModuleHolder::ModuleHolder;
  /// A module that drops this part of its inputs.
  explicit Dropout(double p = 0.5);
};

/// The module of Embedding.
class EmbeddingImpl : public Module {
 public:
  EmbeddingImpl(std::int64_t num_embeddings, std::int64_t embedding_dim);  ///< as Embedding
  Tensor forward(
      const Tensor& input) const override;  ///< the rows of `weight` at int32 or int64 indices
  bool casts_inputs() const override { return false; }

  Variable weight;  ///< [num_embeddings, embedding_dim]
};
/// Looks up rows of a table, which starts standard normal. As torch.nn.Embedding.
class Embedding : public ModuleHolder<EmbeddingImpl> {
 public:
  using ModuleHolder::ModuleHolder;
  Embedding() = default;  ///< an empty handle, to be assigned
  /// A handle to this module.
  explicit Embedding(std::shared_ptr<EmbeddingImpl> impl)
      : ModuleHolder(std::move(impl)), weight((*this)->weight) {}
  /// A table of this size.
  Embedding(std::int64_t num_embeddings, std::int64_t embedding_dim);

  Variable weight;  ///< that of the module
};

/// The module of LayerNorm.
class LayerNormImpl : public Module {
 public:
  LayerNormImpl(std::int64_t features, double eps);    ///< as LayerNorm
  Tensor forward(const Tensor& input) const override;  ///< normalizes over the last axis

  Variable weight;  ///< [features]
  Variable bias;    ///< [features]

 private:
  double eps_;
};
/// Layer normalization over the last axis. As torch.nn.LayerNorm for one axis.
class LayerNorm : public ModuleHolder<LayerNormImpl> {
 public:
  using ModuleHolder::ModuleHolder;
  LayerNorm() = default;  ///< an empty handle, to be assigned
  /// A handle to this module.
  explicit LayerNorm(std::shared_ptr<LayerNormImpl> impl)
      : ModuleHolder(std::move(impl)), weight((*this)->weight), bias((*this)->bias) {}
  /// A module for inputs of this size along the last axis.
  explicit LayerNorm(std::int64_t features, double eps = 1e-5);

  Variable weight;  ///< that of the module
  Variable bias;    ///< that of the module
};

/// The module of Sequential.
class SequentialImpl : public Module {
 public:
  SequentialImpl() = default;
  /// Adds a module or a layer. Its name is its number.
  void push_back(const Layer& module);
  /// Adds a module or a layer of this name.
  void push_back(const std::string& name, const Layer& module) { register_module(name, module); }
  std::size_t size() const { return children().size(); }  ///< the number of modules
  Tensor forward(const Tensor& input) const override;     ///< calls the modules in sequence
};
/// Modules in sequence; layers may be among them. As torch.nn.Sequential.
class Sequential : public ModuleHolder<SequentialImpl> {
 public:
  using ModuleHolder::ModuleHolder;
  Sequential();  ///< without modules
  /// These modules.
  template <std::convertible_to<Layer>... M>
  requires(sizeof...(M) > 0 &&
           !(std::derived_from<M, Sequential> && ...)) explicit Sequential(const M&... modules)
      : Sequential() {
    ((*this)->push_back(Layer(modules)), ...);
  }
};

/// The module of ModuleList.
class ModuleListImpl : public ModuleBase {
 public:
  ModuleListImpl() = default;
  void push_back(const Layer& module);  ///< adds a module or a layer; its name is its number
  std::size_t size() const { return modules_.size(); }  ///< the number of modules
  /// A module. Throws OutOfRangeError.
  const Layer& operator[](std::size_t index) const;
  /// @{
  /// The modules in their order.
  std::vector<Layer>::const_iterator begin() const { return modules_.begin(); }
  std::vector<Layer>::const_iterator end() const { return modules_.end(); }
  /// @}

 private:
  std::vector<Layer> modules_;
};
/// Modules in a list, each of which your forward() calls: `for (auto& block : *blocks) x =
/// block(x)`. The module itself, where forward() has another form than tensors to a tensor:
/// `block->as<Block>()->forward(x, state)`. As torch.nn.ModuleList.
class ModuleList : public ModuleHolder<ModuleListImpl> {
 public:
  using ModuleHolder::ModuleHolder;
  ModuleList();  ///< without modules
  /// These modules.
  template <std::convertible_to<Layer>... M>
  requires(sizeof...(M) > 0 &&
           !(std::derived_from<M, ModuleList> && ...)) explicit ModuleList(const M&... modules)
      : ModuleList() {
    ((*this)->push_back(Layer(modules)), ...);
  }
  /// @{
  /// As those of the list, which PyTorch's programs call by a dot.
  void push_back(const Layer& module) const { (*this)->push_back(module); }
  void append(const Layer& module) const { (*this)->push_back(module); }
  std::size_t size() const { return (*this)->size(); }
  const Layer& operator[](std::size_t index) const { return (**this)[index]; }
  auto begin() const { return (*this)->begin(); }
  auto end() const { return (*this)->end(); }
  /// @}
};

/// Initial values of parameters, assigned in place. As torch.nn.init. The kaiming functions do not
/// exist, because the fans of a Linear, [out, in], and of a layer's kernel, [in, out], differ: see
/// tandem/initializers.h for those of layers.
namespace init {
void zeros_(const Variable& parameter);                   ///< all zeros
void ones_(const Variable& parameter);                    ///< all ones
void constant_(const Variable& parameter, double value);  ///< all `value`
/// Uniform over [low, high).
void uniform_(const Variable& parameter, double low = 0.0, double high = 1.0);
/// Normal distribution.
void normal_(const Variable& parameter, double mean = 0.0, double stddev = 1.0);
/// @{
/// Glorot and Bengio 2010, of a matrix; `gain` scales the result. Throws ShapeError for another
/// rank.
void xavier_uniform_(const Variable& parameter, double gain = 1.0);
void xavier_normal_(const Variable& parameter, double gain = 1.0);
/// @}
}  // namespace init

}  // namespace tandem::nn
