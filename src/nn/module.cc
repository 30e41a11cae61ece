#include "tandem/module.h"

#include <algorithm>
#include <cmath>
#include <unordered_set>
#include <utility>

#include "core/status.h"
#include "nn/function_module.h"
#include "nn/trial.h"
#include "nn/type_name.h"
#include "tandem/array.h"
#include "tandem/creation.h"
#include "tandem/math.h"
#include "tandem/nn.h"
#include "tandem/random.h"

namespace tandem::nn {
namespace {

Initializer value_of(const Tensor& value) {
  return {"value", [value](const Shape&, DType) { return value; }};
}

std::string dotted(std::string name) {
  std::ranges::replace(name, '/', '.');
  return name;
}

void add_named(const LayerBase& layer, const std::string& prefix,
               std::unordered_set<const void*>& seen,
               std::vector<std::pair<std::string, Variable>>& result) {
  if (!seen.insert(layer.identity()).second) return;
  for (const Variable& variable : layer.own_variables()) {
    // The variable's name is the layer's path or label, and its name in the layer.
    const std::string& base = layer.path().empty() ? layer.label() : layer.path();
    const std::string& name = variable.name();
    const std::string own = name.starts_with(base + "/") ? name.substr(base.size() + 1)
                                                         : name.substr(name.rfind('/') + 1);
    result.emplace_back(prefix + dotted(own), variable);
  }
  for (const Layer& child : layer.children())
    add_named(child.base(), prefix + child.name() + ".", seen, result);
}

[[noreturn]] void refuse_forward(const ModuleBase& module, const char* parameters) {
  fail<UnimplementedError>(
      "[{}] expected a class with td::Tensor forward({}); call a function of another form itself, "
      "as in net.forward(x, y, z)",
      module.label(), parameters);
}

}  // namespace

void refuse_empty_module() {
  throw FailedPreconditionError(
      "[nn] an empty module was used: assign one, such as fc1 = register_module(\"fc1\", "
      "nn::Linear(784, 64))");
}

struct ModuleBase::Members {
  std::vector<Layer> children;
  std::map<std::int64_t, ForwardHook> hooks;  // by number, in the order of registration
  std::int64_t hooks_made = 0;
};

ModuleBase::ModuleBase() : ModuleBase(std::string()) {}

ModuleBase::ModuleBase(std::string name)
    : LayerBase(std::move(name)), members_(std::make_shared<Members>()) {
  mark_built(true);
  set_training(true);
}

ModuleBase& ModuleBase::operator=(const ModuleBase& other) {
  if (this == &other) return *this;
  LayerBase::operator=(other);
  members_ = other.members_;
  return *this;
}

void ModuleBase::add_child(const std::string& name, const Layer& child) {
  if (name.empty() || name.find_first_of("./") != std::string::npos)
    fail<InvalidArgumentError>("[{}] expected a name without '.' and '/' for a module, got '{}'",
                               label(), name);
  for (const Layer& other : members_->children)
    if (other.name() == name)
      fail<InvalidArgumentError>("[{}] there is a module '{}' already", label(), name);
  LayerBase& base = child.base();
  base.set_name(name);
  base.set_training(is_training());
  base.move_to(path().empty() ? name : path() + "/" + name);
  members_->children.push_back(child);
}

Parameter ModuleBase::register_parameter(const std::string& name, const Tensor& value,
                                         bool requires_grad) {
  if (name.empty() || name.find_first_of("./") != std::string::npos)
    fail<InvalidArgumentError>("[{}] expected a name without '.' and '/' for a parameter, got '{}'",
                               label(), name);
  if (!value.defined())
    fail<InvalidArgumentError>("[{}] expected a value for '{}', got an undefined tensor", label(),
                               name);
  return Parameter(add_weight(name, value.shape(), value_of(value.detach()),
                              {.trainable = requires_grad}, value.dtype()));
}

Parameter ModuleBase::register_buffer(const std::string& name, const Tensor& value) {
  return register_parameter(name, value, false);
}

std::vector<Variable> ModuleBase::parameters() const {
  for (const Layer& child : members_->children)
    if (!child.built())
      fail<FailedPreconditionError>(
          "[{}] '{}' has no parameters before it knows the shape of its input: call the module "
          "once, or use a module such as nn::Linear",
          label(), child.name());
  return trainable_variables();
}

std::vector<std::pair<std::string, Variable>> ModuleBase::named_variables() const {
  std::vector<std::pair<std::string, Variable>> result;
  std::unordered_set<const void*> seen;
  add_named(*this, "", seen, result);
  return result;
}

void ModuleBase::zero_grad() {
  for (Variable variable : trainable_variables()) variable.zero_grad();
}

std::string ModuleBase::kind() const {
  const std::string name = snake_case_name(typeid(*this));
  return name.size() > 5 && name.ends_with("_impl") ? name.substr(0, name.size() - 5) : name;
}

std::vector<Layer> ModuleBase::children() const { return members_->children; }

std::vector<std::pair<std::string, Layer>> ModuleBase::named_children() const {
  std::vector<std::pair<std::string, Layer>> result;
  for (const Layer& child : members_->children) result.emplace_back(child.name(), child);
  return result;
}

RemovableHandle ModuleBase::add_hook(ForwardHook hook) {
  const std::int64_t number = members_->hooks_made++;
  members_->hooks.emplace(number, std::move(hook));
  return RemovableHandle([members = std::weak_ptr<Members>(members_), number] {
    if (const std::shared_ptr<Members> alive = members.lock()) alive->hooks.erase(number);
  });
}

Tensor ModuleBase::after_hooks(const Tensor& input, Tensor output) const {
  if (members_->hooks.empty()) return output;
  const std::map<std::int64_t, ForwardHook> hooks = members_->hooks;  // a hook may remove itself
  for (const auto& [number, hook] : hooks)
    if (Tensor other = hook(*this, input, output); other.defined()) output = std::move(other);
  return output;
}

ModuleBase& ModuleBase::to(std::string_view device) {
  for (const auto& [name, variable] : named_variables()) {
    const Tensor value = variable.value();
    if (!value.same_as(value.to(device)))
      fail<UnimplementedError>(
          "[{}] '{}' is on {} and stays there: make the module under td::DeviceScope "
          "scope(\"{}\"), instead of to(\"{}\")",
          label(), name, value.device(), device, device);
  }
  return *this;
}

ModuleBase& ModuleBase::to(DType dtype) {
  for (const auto& [name, variable] : named_variables())
    if (is_floating(variable.dtype()) && variable.dtype() != dtype)
      fail<UnimplementedError>(
          "[{}] '{}' is of {} and stays so: for computation in {} use td::amp::autocast", label(),
          name, name_of(variable.dtype()), name_of(dtype));
  return *this;
}

Tensor ModuleBase::call(std::span<const Tensor> inputs, const CallOptions&) {
  if (!forward_)
    fail<UnimplementedError>(
        "[{}] expected a class with td::Tensor forward(td::Tensor x) that is public", label());
  if (inputs.size() != arity_)
    fail<InvalidArgumentError>("[{}] forward() takes {} tensors, got {}", label(), arity_,
                               inputs.size());
  return after_hooks(inputs[0], forward_(inputs));
}

Shape ModuleBase::output_shape(std::span<const Shape> input_shapes) const {
  auto& self = const_cast<ModuleBase&>(*this);
  return shape_of_call(input_shapes, [&](TensorList inputs) { return self.call_in_trial(inputs); });
}

// Calls through pointers to members are virtual, and name one of the overloads.
Tensor Module::forward(const Tensor& x) {
  constexpr Tensor (Module::*by_value)(Tensor) = &Module::forward;
  return (this->*by_value)(x);
}
Tensor Module::forward(Tensor x) {
  constexpr Tensor (Module::*of_const)(const Tensor&) const = &Module::forward;
  return (this->*of_const)(x);
}
Tensor Module::forward(const Tensor&) const { refuse_forward(*this, "const td::Tensor& x"); }
Tensor Module::forward(const Tensor& a, const Tensor& b) {
  constexpr Tensor (Module::*by_value)(Tensor, Tensor) = &Module::forward;
  return (this->*by_value)(a, b);
}
Tensor Module::forward(Tensor, Tensor) {
  refuse_forward(*this, "const td::Tensor& a, const td::Tensor& b");
}

Tensor Module::operator()(const Tensor& x) {
  constexpr Tensor (Module::*run)(const Tensor&) = &Module::forward;
  return after_hooks(x, (this->*run)(x));
}
Tensor Module::operator()(const Tensor& a, const Tensor& b) {
  constexpr Tensor (Module::*run)(const Tensor&, const Tensor&) = &Module::forward;
  return after_hooks(a, (this->*run)(a, b));
}

LinearImpl::LinearImpl(std::int64_t in_features, std::int64_t out_features,
                       const LinearOptions& options) {
  if (in_features <= 0 || out_features <= 0)
    fail<InvalidArgumentError>("[linear] expected positive numbers of features, got {} and {}",
                               in_features, out_features);
  const double bound = 1.0 / std::sqrt(static_cast<double>(in_features));
  weight =
      register_parameter("weight", random::uniform({out_features, in_features}, -bound, bound));
  if (options.bias)
    bias = register_parameter("bias", random::uniform({out_features}, -bound, bound));
}

Tensor LinearImpl::forward(const Tensor& input) const {
  const Shape& shape = input.shape();
  const std::int64_t features = weight.shape().word(1);
  if (shape.rank() < 1 || (shape.word(-1) >= 0 && shape.word(-1) != features))
    fail<InvalidArgumentError>("[{}] expected an input whose last axis has {} elements, got {}",
                               path().empty() ? label() : path(), features, shape.to_string());
  if (shape.rank() == 2) {
    const Tensor product = matmul(input, weight, {.transpose_b = true});
    return bias.defined() ? bias_add(product, bias) : product;
  }
  return dense(input, transpose(weight), bias.defined() ? bias.value() : Tensor());
}

ReLU::ReLU() : ModuleHolder(function_module("relu", [](const Tensor& x) { return relu(x); })) {}
LeakyReLU::LeakyReLU(double negative_slope)
    : ModuleHolder(function_module("leaky_relu", [negative_slope](const Tensor& x) {
        return leaky_relu(x, negative_slope);
      })) {}
ELU::ELU(double alpha)
    : ModuleHolder(function_module("elu", [alpha](const Tensor& x) { return elu(x, alpha); })) {}
GELU::GELU(const std::string& approximate)
    : ModuleHolder(function_module(
          "gelu", [approximate](const Tensor& x) { return functional::gelu(x, approximate); })) {
  static_cast<void>(functional::gelu(zeros({0}), approximate));  // refuses another name
}
SiLU::SiLU() : ModuleHolder(function_module("silu", [](const Tensor& x) { return swish(x); })) {}
Sigmoid::Sigmoid()
    : ModuleHolder(function_module("sigmoid", [](const Tensor& x) { return tandem::sigmoid(x); })) {
}
Tanh::Tanh()
    : ModuleHolder(function_module("tanh", [](const Tensor& x) { return tandem::tanh(x); })) {}
Softplus::Softplus(double beta, double threshold)
    : ModuleHolder(function_module("softplus", [beta, threshold](const Tensor& x) {
        return functional::softplus(x, beta, threshold);
      })) {}
Identity::Identity()
    : ModuleHolder(function_module("identity", [](const Tensor& x) { return x; })) {}
Softmax::Softmax(std::int64_t dim)
    : ModuleHolder(function_module("softmax", [dim](const Tensor& x) { return softmax(x, dim); })) {
}
LogSoftmax::LogSoftmax(std::int64_t dim)
    : ModuleHolder(
          function_module("log_softmax", [dim](const Tensor& x) { return log_softmax(x, dim); })) {}

Flatten::Flatten(std::int64_t start_dim)
    : ModuleHolder(function_module(
          "flatten", [start_dim](const Tensor& x) { return x.flatten(start_dim); })) {}

DropoutImpl::DropoutImpl(double p) : p_(p) {
  if (!(p >= 0.0 && p < 1.0))
    fail<InvalidArgumentError>("[dropout] expected a probability in [0, 1), got {}", p);
}

Tensor DropoutImpl::forward(const Tensor& input) const {
  return p_ > 0.0 && is_training() ? dropout(input, p_) : input;
}

EmbeddingImpl::EmbeddingImpl(std::int64_t num_embeddings, std::int64_t embedding_dim) {
  if (num_embeddings <= 0 || embedding_dim <= 0)
    fail<InvalidArgumentError>("[embedding] expected positive sizes, got {} and {}", num_embeddings,
                               embedding_dim);
  weight = register_parameter("weight", random::normal({num_embeddings, embedding_dim}, 0.0, 1.0));
}

Tensor EmbeddingImpl::forward(const Tensor& input) const { return embedding_lookup(weight, input); }

LayerNormImpl::LayerNormImpl(std::int64_t features, double eps) : eps_(eps) {
  if (features <= 0)
    fail<InvalidArgumentError>("[layer_norm] expected a positive size, got {}", features);
  weight = register_parameter("weight", ones({features}));
  bias = register_parameter("bias", zeros({features}));
}

Tensor LayerNormImpl::forward(const Tensor& input) const {
  return layer_norm(input, weight, bias, eps_);
}

void SequentialImpl::push_back(const Layer& module) { push_back(std::to_string(size()), module); }

Tensor SequentialImpl::forward(const Tensor& input) const {
  Tensor value = input;
  for (const Layer& module : children()) value = module(value);
  return value;
}

void ModuleListImpl::push_back(const Layer& module) {
  modules_.push_back(register_module(std::to_string(size()), module));
}

const Layer& ModuleListImpl::operator[](std::size_t index) const {
  return modules_[detail::checked_index("ModuleList", index, size())];
}

namespace {

// fan_in + fan_out of a matrix, which does not depend on which axis is which.
double fans(const Variable& parameter, const char* what) {
  if (parameter.rank() != 2)
    fail<ShapeError>("[{}] expected a matrix, got shape {}", what, parameter.shape().to_string());
  return static_cast<double>(parameter.dim(0) + parameter.dim(1));
}

}  // namespace

void init::zeros_(const Variable& parameter) { constant_(parameter, 0.0); }
void init::ones_(const Variable& parameter) { constant_(parameter, 1.0); }
void init::constant_(const Variable& parameter, double value) {
  Variable(parameter).assign(full(parameter.shape(), value, parameter.dtype()));
}
void init::uniform_(const Variable& parameter, double low, double high) {
  Variable(parameter).assign(
      random::uniform(parameter.shape(), low, high, {.dtype = parameter.dtype()}));
}
void init::normal_(const Variable& parameter, double mean, double stddev) {
  Variable(parameter).assign(
      random::normal(parameter.shape(), mean, stddev, {.dtype = parameter.dtype()}));
}
void init::xavier_uniform_(const Variable& parameter, double gain) {
  const double limit = gain * std::sqrt(6.0 / fans(parameter, "xavier_uniform_"));
  uniform_(parameter, -limit, limit);
}
void init::xavier_normal_(const Variable& parameter, double gain) {
  normal_(parameter, 0.0, gain * std::sqrt(2.0 / fans(parameter, "xavier_normal_")));
}

Linear::Linear(std::int64_t in_features, std::int64_t out_features, const LinearOptions& options)
    : Linear(std::make_shared<LinearImpl>(in_features, out_features, options)) {}

Dropout::Dropout(double p) : ModuleHolder(std::make_shared<DropoutImpl>(p)) {}

Embedding::Embedding(std::int64_t num_embeddings, std::int64_t embedding_dim)
    : Embedding(std::make_shared<EmbeddingImpl>(num_embeddings, embedding_dim)) {}

LayerNorm::LayerNorm(std::int64_t features, double eps)
    : LayerNorm(std::make_shared<LayerNormImpl>(features, eps)) {}

Sequential::Sequential() : ModuleHolder(std::make_shared<SequentialImpl>()) {}
ModuleList::ModuleList() : ModuleHolder(std::make_shared<ModuleListImpl>()) {}

}  // namespace tandem::nn
