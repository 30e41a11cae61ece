#include "tandem/model.h"

#include <algorithm>
#include <set>

#include "core/log.h"
#include "core/status.h"
#include "graph/program_memory.h"
#include "nn/layer_base.h"
#include "nn/layer_tree.h"
#include "nn/optimizer_impl.h"
#include "nn/weights.h"
#include "runtime/replica_context.h"
#include "train/checkpoint/safetensors.h"
#include "train/functional.h"
#include "train/model_impl.h"
#include "train/own_model.h"
#include "train/training_state.h"
#include "train/weights_lock.h"

namespace tandem {
namespace {

Shape with_unknown_batch(Shape shape) {
  if (shape.rank() > 0) shape.set(0, -1);
  return shape;
}

std::vector<Shape> shapes_of(std::span<const Tensor> inputs) {
  std::vector<Shape> shapes;
  for (const Tensor& input : inputs) shapes.push_back(with_unknown_batch(input.shape()));
  return shapes;
}

void require_ownership(const StepRunner& runner, const std::vector<Variable>& variables,
                       const char* whose) {
  for (const Variable& variable : variables)
    if (!runner.owns(variable))
      fail<InvalidArgumentError>(
          "[compile] Variable '{}' of the {} was not created in the distribution strategy scope "
          "that compile() is for; make the model and the optimizer's variables in one "
          "strategy.scope()",
          variable.name(), whose);
}

bool has_unique_names(const std::vector<Variable>& variables) {
  std::set<std::string> names;
  return std::all_of(variables.begin(), variables.end(), [&](const Variable& variable) {
    return names.insert(variable.name()).second;
  });
}

bool computes_in_float16(const Layer& model) {
  bool found = false;
  for_each_layer(model, [&](const LayerBase& layer) {
    found = found || layer.dtype_policy().compute_dtype() == float16;
  });
  return found;
}

}  // namespace

Model::Impl& impl_of(const Model& model, const char* what) {
  if (!model.defined()) fail<FailedPreconditionError>("[{}] an undefined model was used", what);
  return *model.impl();
}

Model::Impl& compiled_impl_of(const Model& model, const char* what) {
  Model::Impl& impl = impl_of(model, what);
  if (!impl.compiled)
    fail<FailedPreconditionError>("[{}] the model is not compiled; call compile() first", what);
  return impl;
}

Model::Impl& built_impl_of(const Model& model, const char* what) {
  Model::Impl& impl = impl_of(model, what);
  if (!impl.layer.base().built())
    fail<FailedPreconditionError>(
        "[{}] the model is not built: give its first layer an input_shape, or call build() first",
        what);
  return impl;
}

template <>
bool TrainableFlag<Model>::operator()() const {
  return impl_of(*owner_, "trainable").layer.trainable;
}

template <>
const TrainableFlag<Model>& TrainableFlag<Model>::operator=(bool value) const {
  impl_of(*owner_, "trainable").layer.set_trainable(value);
  return *this;
}

Model::StopFlag::operator bool() const { return model_->defined() && model_->impl()->stop; }

const Model::StopFlag& Model::StopFlag::operator=(bool value) const {
  impl_of(*model_, "stop_training").stop = value;
  return *this;
}

void Model::Impl::build(std::vector<Shape> shapes) {
  expect_inputs(shapes.size());
  layer.base().ensure_built(shapes);
  if (policy.defined()) layer.base().set_dtype_policy(policy);
  if (input_shapes.empty()) {
    built_under = StepRunner::in_scope();
    built_by = VariableCreator::current();
  }
  input_shapes = std::move(shapes);
  if (!sequential) layers = layer.base().children();
  // Models that were built before they became layers of this one have variables of equal names.
  if (!has_unique_names(layer.variables()))
    for (const Layer& child : layers)
      if (child.base().path().empty() && !child.base().children().empty())
        child.base().move_to(child.name());
}

void Model::Impl::build_at_call(TensorList inputs) {
  ReplicaContext* const replica = ReplicaContext::current();
  if (layer.base().built()) {
    // Another replica may still be in build(), after it has built the layer.
    if (replica) replica->find_built(layer.base().identity());
    return;
  }
  const auto make = [&] {
    if (!layer.base().built()) build(shapes_of(inputs));
  };
  replica ? replica->build(layer.base().identity(), make) : make();
}

void Model::Impl::stack(const std::vector<Layer>& all, const std::string& name) {
  Shape declared;
  std::vector<Layer> kept, called;
  for (const Layer& element : all) {
    const auto* input = dynamic_cast<const InputLayer*>(&element.base());
    if (!input || input->casts()) called.push_back(element);
    if (!input) {
      kept.push_back(element);
      continue;
    }
    if (&element != &all.front())
      throw InvalidArgumentError("[Sequential] expected an Input() only as the first element");
    declared = element.base().declared_input_shape();
  }
  Layer made = layers::Stack(called, {.name = name});
  if (!declared.known()) declared = kept.front().base().declared_input_shape();
  if (declared.known()) made.base().declare_input_shape(declared);
  if (layer.defined()) {
    if (!layer.trainable()) made.set_trainable(false);
    made.base().set_training(layer.base().default_options().training);
  }
  sequential = true;
  layer = std::move(made);
  layers = std::move(kept);
  if (!input_shapes.empty()) {
    const Scoped creator(context.creator, built_by);
    build(input_shapes);
  } else if (declared.known()) {
    build({declared.with_leading(-1)});
  }
}

Model::Model(Layer layer) : impl_(std::make_shared<Impl>()) {
  impl_->layer = std::move(layer);
  LayerBase& base = impl_->layer.base();
  impl_->layers = base.children();
  if (base.declared_input_shape().known())
    impl_->build({base.declared_input_shape().with_leading(-1)});
}

const Layer& Model::layer() const { return impl_of(*this, "layer").layer; }
std::vector<Layer> Model::layers() const { return impl_of(*this, "layers").layers; }

Layer Model::get_layer(std::string_view name) const {
  std::string names;
  for (const Layer& layer : layers()) {
    if (layer.name() == name) return layer;
    names += fmt::format("{}'{}'", names.empty() ? "" : ", ", layer.name());
  }
  fail<NotFoundError>("[get_layer] the model has no layer '{}', only {}", name,
                      names.empty() ? "none" : names);
}

Layer Model::get_layer(std::int64_t index) const {
  const std::vector<Layer> all = layers();
  const auto count = static_cast<std::int64_t>(all.size());
  if (index < -count || index >= count)
    fail<OutOfRangeError>("[get_layer] expected an index in [{}, {}), got {}", -count, count,
                          index);
  return all[static_cast<std::size_t>(index < 0 ? index + count : index)];
}

Tensor Model::operator()(const Tensor& input) const { return (*this)(std::span(&input, 1)); }

Tensor Model::operator()(const Tensor& input, const CallOptions& options) const {
  return (*this)(std::span(&input, 1), options);
}

Tensor Model::operator()(TensorList inputs) const {
  return (*this)(inputs, impl_of(*this, "call").layer.base().default_options());
}

Tensor Model::operator()(TensorList inputs, const CallOptions& options) const {
  Impl& impl = impl_of(*this, "call");
  impl.build_at_call(inputs);
  const ReadsWeights reading(impl);
  return impl.layer(inputs, options);
}

std::vector<Tensor> Model::call_all(ModelTensors inputs, const CallOptions& options) const {
  Impl& impl = impl_of(*this, "call_all");
  const std::vector<Tensor> ordered = impl.inputs_of(inputs);
  impl.build_at_call(ordered);
  const ReadsWeights reading(impl);
  return call_all_outputs(impl.layer, ordered, options);
}

void Model::build(const Shape& input_shape) {
  Impl& impl = impl_of(*this, "build");
  if (!input_shape.known() || input_shape.rank() < 1)
    fail<InvalidArgumentError>("[build] expected a shape with a batch axis, got {}",
                               input_shape.to_string());
  if (!built()) impl.build({with_unknown_batch(input_shape)});
}

bool Model::built() const { return impl_of(*this, "built").layer.base().built(); }

std::vector<Variable> Model::variables() const {
  return built_impl_of(*this, "variables").layer.variables();
}
std::vector<Variable> Model::trainable_variables() const {
  return built_impl_of(*this, "trainable_variables").layer.trainable_variables();
}
std::vector<Variable> Model::non_trainable_variables() const {
  return built_impl_of(*this, "non_trainable_variables").layer.non_trainable_variables();
}

std::vector<Tensor> Model::get_weights() const { return values_of(variables()); }

void Model::set_weights(const std::vector<Tensor>& weights) const {
  const std::vector<Variable> targets = variables();
  const ReplacesWeights replacing(*impl());
  assign_values(targets, weights, layer().base().label());
}

NamedParameters Model::named_parameters() const {
  return built_impl_of(*this, "named_parameters").layer.named_parameters();
}

StateDict Model::state_dict() const {
  return built_impl_of(*this, "state_dict").layer.state_dict();
}

void Model::load_state_dict(const std::map<std::string, Tensor>& state) const {
  Impl& impl = built_impl_of(*this, "load_state_dict");
  const ReplacesWeights replacing(impl);
  impl.layer.load_state_dict(state);
}

void Model::zero_grad() const {
  for (Variable variable : trainable_variables()) variable.zero_grad();
}

void Model::set_trainable(bool value) const {
  impl_of(*this, "set_trainable").layer.set_trainable(value);
}

std::int64_t Model::count_params() const {
  return built_impl_of(*this, "count_params").layer.count_params();
}

namespace {

void check_compile_options(const Model& model, const ModelImpl& impl,
                           const CompileOptions& options) {
  // The steps of a class of the user's may have one of their own.
  const auto has_loss = [](const auto& item) {
    return std::ranges::any_of(item.values, &losses::Loss::defined);
  };
  if (std::ranges::none_of(options.loss.items(), has_loss) && !impl.own && !has_own_class(model))
    throw InvalidArgumentError("[compile] expected a loss, got none");
  if (impl.num_outputs() > 1 && has_own_class(model))
    fail<UnimplementedError>(
        "[compile] expected one output of a class that is derived from Model, got {}: train a "
        "td::Functional or td::Model of several outputs itself",
        impl.num_outputs());
  if (!options.optimizer.get().defined())
    throw InvalidArgumentError("[compile] expected an optimizer, got an undefined one");
  if (options.steps_per_execution < 1)
    fail<InvalidArgumentError>("[compile] expected steps_per_execution of at least 1, got {}",
                               options.steps_per_execution);
}

void warn_of_probabilities_loss(const ModelImpl& impl) {
  if (const auto* layer = dynamic_cast<const KindLayer*>(&impl.layer.base());
      layer && layer->makes_logits() && !impl.losses.empty() &&
      impl.losses.front().loss.expects_probabilities())
    logging::warn(
        "[compile] the loss '{}' expects probabilities, and the last layer has no activation: give "
        "the loss .from_logits = true, or the layer an activation such as \"softmax\"",
        impl.losses.front().loss.name());
}

}  // namespace

void Model::compile(CompileOptions options) {
  Impl& impl = impl_of(*this, "compile");
  check_compile_options(*this, impl, options);
  const bool as_built = !StepRunner::in_scope() && impl.built_under;
  const std::shared_ptr<StepRunner> runner = as_built ? impl.built_under : StepRunner::current();
  if (built()) require_ownership(*runner, variables(), "model");
  const optimizers::Optimizer& optimizer = options.optimizer.get();
  require_ownership(*runner, optimizer.impl()->variables_of_steps(), "optimizer");
  impl.compile_outputs(options);
  warn_of_probabilities_loss(impl);
  impl.optimizer = optimizer;
  if (options.dtype.defined()) {
    impl.policy = options.dtype;
    impl.layer.base().set_dtype_policy(options.dtype);
  }
  if (computes_in_float16(impl.layer) && !impl.optimizer.impl()->loss_scale())
    impl.optimizer = optimizers::LossScaleOptimizer(impl.optimizer);
  impl.runner = runner;
  impl.creator = as_built ? impl.built_by : VariableCreator::current();
  const auto memory = ProgramMemory::make();
  const auto program = [&](const char* what) {
    return std::make_unique<StepProgram>(what, options.run_eagerly, memory);
  };
  impl.train_step = program("fit");
  impl.test_step = program("evaluate");
  impl.predict_step = program("predict");
  impl.steps_per_execution = options.steps_per_execution;
  impl.trained = impl.tested = {};
  impl.compiled = true;
}

optimizers::Optimizer Model::optimizer() const {
  return compiled_impl_of(*this, "optimizer").optimizer;
}

void Model::save_weights(const std::filesystem::path& path) const {
  expect_safetensors_name(path);  // on every worker
  TensorFile file;
  bool writes = true;
  for (const Variable& variable : variables()) {
    if (!file.tensors.emplace(variable.name(), variable.value()).second)
      fail<InvalidArgumentError>(
          "[save_weights] two variables are named '{}'; give their layers unique names",
          variable.name());
    if (const auto& workers = variable.impl().workers()) writes = workers->is_chief();
  }
  if (writes) save_safetensors(path, file);
}

void Model::load_weights(const std::filesystem::path& path) {
  const std::vector<Variable> targets = variables();
  const CheckpointReader reader(path);
  const std::string prefix = weights_prefix(reader, targets);
  std::map<std::string, Tensor> tensors;
  for (const auto& [name, tensor] : reader.tensors())
    if (name.starts_with(prefix)) tensors.emplace(name.substr(prefix.size()), reader.read(name));
  for (const Variable& target : targets)
    if (reader.foreign().contains(prefix + target.name()))
      reader.at(prefix + target.name());  // throws
  const ReplacesWeights replacing(*impl());
  restore_variables(targets, tensors, fmt::format("'{}'", path.string()));
}

void save_weights(const Model& model, const std::filesystem::path& path) {
  model.save_weights(path);
}

const std::vector<double>& HistoryValues::at(const std::string& name) const& {
  return map::at(name);
}
std::vector<double> HistoryValues::at(const std::string& name) const&& { return map::at(name); }
std::vector<double>& HistoryValues::operator[](const std::string& name) & {
  return map::operator[](name);
}
std::vector<double> HistoryValues::operator[](const std::string& name) && {
  return map::operator[](name);
}

const std::vector<double>& History::at(const std::string& name) const& {
  const auto found = history.find(name);
  if (found != history.end()) return found->second;
  std::string known;
  for (const auto& [other, values] : history)
    known += fmt::format("{}'{}'", known.empty() ? "" : ", ", other);
  fail<NotFoundError>("[History] metric '{}' is not available. Available metrics are: {}", name,
                      known.empty() ? "nothing" : known);
}

Layer::Layer(const Model& model) : Layer(model.layer()) {}

SymbolicInputs::SymbolicInputs(const SymbolicInput& one) : vector{one} {}

Sequential::Sequential(std::initializer_list<Layer> layers, const SequentialOptions& options)
    : Sequential(std::vector<Layer>(layers), options) {}
Sequential::Sequential(const std::vector<Layer>& layers, const SequentialOptions& options) {
  auto impl = std::make_shared<Impl>();
  impl->stack(layers, options.name);
  if (!options.trainable) impl->layer.set_trainable(false);
  impl_ = std::move(impl);
}

void Sequential::add(const Layer& layer) {
  if (!defined()) {
    auto impl = std::make_shared<Impl>();
    if (dynamic_cast<const InputLayer*>(&layer.base()))
      impl->first = layer;  // there is no stack of no layers
    else
      impl->stack({layer}, "");
    impl_ = std::move(impl);
    return;
  }
  Impl& impl = *this->impl();
  std::vector<Layer> all;
  if (impl.first.defined()) all.push_back(impl.first);
  all.insert(all.end(), impl.layers.begin(), impl.layers.end());
  all.push_back(layer);
  if (impl.layers.empty() && dynamic_cast<const InputLayer*>(&layer.base()))
    throw InvalidArgumentError("[Sequential] expected an Input() only as the first element");
  impl.stack(all, impl.layer.defined() ? impl.layer.name() : std::string());
  impl.first = {};
}

Model::Model(const SymbolicInputs& inputs, const SymbolicInputs& outputs, const std::string& name) {
  const auto layer = std::make_shared<FunctionalLayer>(inputs, outputs, name);
  const std::vector<Shape> shapes = layer->input_shapes();
  *this = Model(Layer(layer));
  impl_->num_inputs = shapes.size();
  if (!built()) impl_->build(shapes);
  impl_->input_names = layer->input_names();
  impl_->target_names = layer->output_names();
  if (outputs.size() > 1) impl_->output_names = impl_->target_names;
}

}  // namespace tandem
