#include "tandem/model.h"

#include <algorithm>
#include <set>

#include "core/status.h"
#include "graph/program_memory.h"
#include "nn/layer_tree.h"
#include "nn/optimizer_impl.h"
#include "train/checkpoint/safetensors.h"
#include "train/functional.h"
#include "train/model_impl.h"
#include "train/training_state.h"

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

void require_unique_names(const std::vector<metrics::Metric>& metrics) {
  std::set<std::string> names = {"loss"};
  for (const metrics::Metric& metric : metrics)
    if (!names.insert(metric.name()).second)
      fail<InvalidArgumentError>(
          "[compile] expected metrics of unique names other than 'loss', got two of '{}'",
          metric.name());
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

void Model::Impl::build(std::vector<Shape> shapes) {
  layer.base().ensure_built(shapes);
  built_under = StepRunner::in_scope();
  built_by = VariableCreator::current();
  input_shapes = std::move(shapes);
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
  if (!impl.layer.base().built()) impl.build(shapes_of(inputs));
  return impl.layer(inputs, options);
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

std::int64_t Model::count_params() const {
  std::int64_t count = 0;
  for (const Variable& variable : variables()) count += variable.shape().num_elements();
  return count;
}

void Model::compile(CompileOptions options) {
  Impl& impl = impl_of(*this, "compile");
  if (!options.loss.defined()) throw InvalidArgumentError("[compile] expected a loss, got none");
  if (!options.optimizer.get().defined())
    throw InvalidArgumentError("[compile] expected an optimizer, got an undefined one");
  if (options.loss.reduction() == losses::Reduction::kNone)
    fail<InvalidArgumentError>(
        "[compile] loss '{}' has reduction kNone, expected a reduction to a scalar",
        options.loss.name());
  if (options.steps_per_execution < 1)
    fail<InvalidArgumentError>("[compile] expected steps_per_execution of at least 1, got {}",
                               options.steps_per_execution);
  std::vector<metrics::Metric> metrics = std::move(options.metrics);
  const std::size_t weighted_from = metrics.size();
  metrics.insert(metrics.end(), options.weighted_metrics.begin(), options.weighted_metrics.end());
  require_unique_names(metrics);
  const bool as_built = !StepRunner::in_scope() && impl.built_under;
  const std::shared_ptr<StepRunner> runner = as_built ? impl.built_under : StepRunner::current();
  if (built()) require_ownership(*runner, variables(), "model");
  const optimizers::Optimizer& optimizer = options.optimizer.get();
  if (!optimizer.defined()) throw FailedPreconditionError("[compile] the optimizer is undefined");
  require_ownership(*runner, optimizer.impl()->variables_of_steps(), "optimizer");
  impl.optimizer = optimizer;
  if (options.dtype.defined()) impl.layer.base().set_dtype_policy(options.dtype);
  if (computes_in_float16(impl.layer) && !impl.optimizer.impl()->loss_scale())
    impl.optimizer = optimizers::LossScaleOptimizer(impl.optimizer);
  impl.loss = std::move(options.loss);
  impl.metrics = std::move(metrics);
  impl.weighted_from = weighted_from;
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
  impl.metric_sizes.clear();
  impl.compiled = true;
}

const optimizers::Optimizer& Model::optimizer() const {
  return compiled_impl_of(*this, "optimizer").optimizer;
}

void Model::stop_training() { impl_of(*this, "stop_training").stop = true; }

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
  restore_variables(targets, tensors, fmt::format("'{}'", path.string()));
}

void save_weights(const Model& model, const std::filesystem::path& path) {
  model.save_weights(path);
}

const std::vector<double>& History::at(const std::string& name) const {
  const auto found = history.find(name);
  if (found != history.end()) return found->second;
  std::string known;
  for (const auto& [other, values] : history)
    known += fmt::format("{}'{}'", known.empty() ? "" : ", ", other);
  fail<NotFoundError>("[History] metric '{}' is not available. Available metrics are: {}", name,
                      known.empty() ? "nothing" : known);
}

Sequential::Sequential(const std::vector<Layer>& layers) {
  const Layer stack = layers::Stack(layers);
  if (!layers.empty() && !stack.base().declared_input_shape().known())
    stack.base().declare_input_shape(layers.front().base().declared_input_shape());
  Model model(stack);
  model.impl()->sequential = true;
  model.impl()->layers = layers;
  Model::operator=(std::move(model));
}

namespace {

Model functional_model(const std::vector<SymbolicInput>& inputs, const SymbolicInput& output) {
  auto layer = std::make_shared<FunctionalLayer>(inputs, output);
  const std::vector<Shape> shapes = layer->input_shapes();
  Model model{Layer(std::move(layer))};
  model.impl()->num_inputs = shapes.size();
  if (!model.built()) model.impl()->build(shapes);
  return model;
}

}  // namespace

Functional::Functional(const std::vector<SymbolicInput>& inputs, const SymbolicInput& output)
    : Model(functional_model(inputs, output)) {}

}  // namespace tandem
