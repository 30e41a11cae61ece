// The common part of all layers: building, names, variables, calls.
#include <algorithm>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <typeinfo>
#include <unordered_set>

#include "core/mutex.h"
#include "core/status.h"
#include "core/threads.h"
#include "nn/layer_base.h"
#include "nn/layer_tree.h"
#include "nn/naming.h"
#include "nn/own_layer.h"
#include "nn/trial.h"
#include "op/context.h"
#include "runtime/autocast.h"
#include "runtime/placement.h"
#include "runtime/replica_context.h"
#include "runtime/trace.h"
#include "runtime/variable_impl.h"
#include "tandem/autodiff.h"
#include "tandem/creation.h"
#include "tandem/errors.h"
#include "tandem/layers.h"
#include "tandem/math.h"

namespace tandem {
namespace {

// Gives a child layer its path under `parent` before it is built, and freezes it with its parent.
void place(LayerBase& child, const std::string& parent, bool trainable) {
  if (child.built() && !child.moves()) return;
  const std::string path = parent.empty() ? child.name() : parent + "/" + child.name();
  if (child.built())
    child.move_to(path);
  else
    child.set_path(path);
  if (!trainable) child.set_trainable(false);
}

bool compatible(const Shape& a, const Shape& b) {
  if (!a.known() || !b.known()) return true;
  if (a.rank() != b.rank()) return false;
  for (int axis = 0; axis < a.rank(); ++axis)
    if (a.word(axis) != b.word(axis) && a.word(axis) >= 0 && b.word(axis) >= 0) return false;
  return true;
}

void check_declared_shape(const LayerBase& layer, std::span<const Shape> input_shapes) {
  const Shape& declared = layer.declared_input_shape();
  if (!declared.known() || input_shapes.empty()) return;
  const Shape expected = declared.with_leading(-1);
  if (!compatible(expected, input_shapes.front()))
    fail<InvalidArgumentError>(
        "[{}] expected an input of shape {}, got {}{}", layer.label(), expected.to_string(),
        input_shapes.front().to_string(),
        expected.rank() == 4 ? channels_first_advice(input_shapes.front(), expected.word(3)) : "");
}

Shape with_unknown_batch(const Shape& shape) {
  Shape result = shape;
  if (result.rank() > 0) result.set(0, -1);
  return result;
}

using LayerVisit = std::function<void(const LayerBase&)>;

void visit_tree(const LayerBase& layer, std::unordered_set<const void*>& seen,
                const LayerVisit& visit) {
  if (!seen.insert(layer.identity()).second) return;
  visit(layer);
  for (const Layer& child : layer.children()) visit_tree(child.base(), seen, visit);
}

template <class Keep>
std::vector<Variable> variables_where(const LayerBase& root, const Keep& keep) {
  std::vector<Variable> result;
  std::unordered_set<const void*> seen;
  visit_tree(root, seen, [&](const LayerBase& layer) {
    for (const Variable& variable : layer.own_variables())
      if (keep(variable.trainable())) result.push_back(variable);
  });
  return result;
}

// Whether a layer that computes in `dtype` casts this input. Under autocast, each operation casts
// its own inputs, so layers in float32 pass 16-bit ones on.
bool casts(const Tensor& input, DType dtype) {
  const DType own = input.dtype();
  return is_floating(own) && own != dtype &&
         !(context.autocast && dtype == float32 && size_of(own) == 2);
}

std::vector<Tensor> cast_floating(TensorList inputs, DType dtype) {
  std::vector<Tensor> result;
  result.reserve(inputs.size());
  for (const Tensor& input : inputs)
    result.push_back(casts(input, dtype) ? cast(input, dtype) : input);
  return result;
}

Tensor call_by_policy(LayerBase& layer, TensorList inputs, const CallOptions& options) {
  const DTypePolicy& policy = layer.dtype_policy();
  const bool casts_weights = layer.casts_variables() && policy.mixed();
  const Scoped weights(context.weight_dtype,
                       casts_weights ? std::optional(policy.compute_dtype()) : std::nullopt);
  const auto needs_cast = [&](const Tensor& x) { return casts(x, policy.compute_dtype()); };
  if (!layer.casts_inputs() || std::none_of(inputs.begin(), inputs.end(), needs_cast))
    return layer.call(inputs, options);
  return layer.call(cast_floating(inputs, policy.compute_dtype()), options);
}

// Calls the layer under its autocast, and casts its result.
Tensor call_in_dtypes(LayerBase& layer, TensorList inputs, const CallOptions& options) {
  if (!layer.autocast() && !layer.output_dtype()) [[likely]]
    return call_by_policy(layer, inputs, options);
  std::optional<AutocastScope> scope;
  if (layer.autocast())
    scope.emplace(
        AutocastSettings{.dtype = *layer.autocast(), .device = place_constant("autocast").type()});
  const Tensor result = call_by_policy(layer, inputs, options);
  const std::optional<DType>& dtype = layer.output_dtype();
  return dtype && is_floating(result.dtype()) ? cast(result, *dtype) : result;
}

// An error that names a layer already. Outer layers do not change it.
template <class E>
class InLayer final : public E {
  using E::E;
};

// The two parts of "[MatMul] expected ...". Without a subject, `rest` is the whole message.
struct ParsedMessage {
  std::string_view subject, rest;
};

ParsedMessage parse(std::string_view text) {
  const std::size_t end = text.find("] ");
  if (!text.starts_with('[') || end == std::string_view::npos) return {{}, text};
  return {text.substr(1, end - 1), text.substr(end + 2)};
}

std::string described(std::span<const Tensor> inputs) {
  std::string list;
  for (const Tensor& input : inputs) {
    if (!list.empty()) list += ", ";
    list += input.defined() ? fmt::format("shape {} and dtype {}", input.shape().to_string(),
                                          name_of(input.dtype()))
                            : "undefined";
  }
  return fmt::format("{} of {}", inputs.size() == 1 ? "an input" : "inputs", list);
}

// Advice for an input whose dtype is not that of the layer's variables.
std::string cast_advice(const LayerBase& layer, std::span<const Tensor> inputs) {
  for (const Variable& variable : layer.own_variables()) {
    const DType dtype = variable.dtype();
    const bool differs = std::any_of(inputs.begin(), inputs.end(), [&](const Tensor& input) {
      return input.defined() && input.dtype() != dtype;
    });
    if (is_floating(dtype) && differs)
      return fmt::format("; the layer's variables are {0}: cast the input, td::cast(x, td::{0})",
                         name_of(dtype));
  }
  return {};
}

std::string message_of(const LayerBase& layer, std::span<const Tensor> inputs,
                       const std::string& text) {
  const std::string path = layer.path().empty() ? layer.label() : layer.path();
  const auto [subject, rest] = parse(text);
  // The layer's own checks describe the input already.
  if (subject == layer.label() || subject == layer.kind())
    return fmt::format("[{}] {}", path, rest);
  const auto* built_in = dynamic_cast<const KindLayer*>(&layer);
  const bool internal = built_in && !built_in->runs_user_code();
  std::string message = fmt::format("[{}] {}; the layer was called with {}", path,
                                    internal ? rest : std::string_view(text), described(inputs));
  if (rest.find("dtype") != std::string_view::npos) message += cast_advice(layer, inputs);
  return message;
}

template <class E>
void rethrow_as(const LayerBase& layer, std::span<const Tensor> inputs, const Error& error) {
  if (typeid(error) == typeid(E)) throw InLayer<E>(message_of(layer, inputs, error.what()));
}

// Rethrows `error`, which is being handled and was thrown by a call of `layer` with `inputs`. The
// message of an error about bad input or missing resources is changed: it begins with the layer's
// path and describes the inputs. Errors that an inner layer has changed are rethrown as they are.
[[noreturn]] void rethrow_from(const LayerBase& layer, std::span<const Tensor> inputs,
                               const Error& error) {
  rethrow_as<ShapeError>(layer, inputs, error);
  rethrow_as<DTypeError>(layer, inputs, error);
  rethrow_as<InvalidArgumentError>(layer, inputs, error);
  rethrow_as<ResourceExhaustedError>(layer, inputs, error);
  rethrow_as<OutOfRangeError>(layer, inputs, error);
  rethrow_as<UnimplementedError>(layer, inputs, error);
  throw;
}

}  // namespace

void for_each_layer(const Layer& root, const LayerVisit& visit) {
  std::unordered_set<const void*> seen;
  visit_tree(root.base(), seen, visit);
}

template <>
bool TrainableFlag<LayerBase>::operator()() const {
  if (!owner_) throw FailedPreconditionError("[Layer] an undefined layer was used");
  return owner_->state_->trainable;
}

template <>
const TrainableFlag<LayerBase>& TrainableFlag<LayerBase>::operator=(bool value) const {
  if (!owner_) throw FailedPreconditionError("[Layer] an undefined layer was used");
  owner_->set_trainable(value);
  return *this;
}

// Threads take turns in building a layer. Nothing would end the turn if build() calls the layer,
// and in a forked process if another thread built it.
class LayerBase::BuildTurn {
 public:
  BuildTurn(State& state, std::string_view layer) : state_(state) {
    std::unique_lock lock(turns().mutex);
    while (state_.builder != nullptr) {
      expect_end(layer);
      turns().changed.wait(lock);
    }
    state_.builder = this_thread();
    state_.builder_process = forks();
  }
  ~BuildTurn() {
    {
      const std::lock_guard lock(turns().mutex);
      state_.builder = nullptr;
    }
    turns().changed.notify_all();
  }
  BuildTurn(const BuildTurn&) = delete;
  BuildTurn& operator=(const BuildTurn&) = delete;

 private:
  // One for all layers: builds are rare, and nest.
  struct Turns {
    std::mutex mutex;
    std::condition_variable changed;
    HeldAtFork held_at_fork{mutex, &changed};
  };
  static Turns& turns() {
    static auto& instance = *new Turns;
    return instance;
  }

  // An address that belongs to this thread.
  static const void* this_thread() {
    static thread_local const char address = 0;
    return &address;
  }

  void expect_end(std::string_view layer) const {
    if (state_.builder_process != forks())
      fail<FailedPreconditionError>(
          "[{}] this process was forked while another thread of its parent built the layer: fork "
          "after it is built, or make another one",
          layer);
    if (state_.builder == this_thread())
      fail<FailedPreconditionError>(
          "[{}] build() calls the layer that it builds: call its parts, or a function that call() "
          "uses as well",
          layer);
  }

  State& state_;
};

LayerBase::LayerBase(std::string name) : state_(std::make_shared<State>()) {
  state_->name = std::move(name);
  state_->dtype_policy = mixed_precision::global_policy();
}

LayerBase& LayerBase::operator=(const LayerBase& other) {
  state_ = other.state_;
  ready_.store(other.ready(), std::memory_order_release);
  return *this;
}

std::vector<Layer> LayerBase::children() const { return {}; }

void LayerBase::set_trainable(bool value) {
  state_->trainable = value;
  for (const Variable& variable : state_->variables) variable.impl().set_frozen(!value);
  for (const Layer& child : children()) child.base().set_trainable(value);
}

void LayerBase::set_training(bool training) {
  state_->training->store(training, std::memory_order_relaxed);
  for (const Layer& child : children()) child.base().set_training(training);
}

void LayerBase::build(std::span<const Shape> input_shapes) {
  if (children().empty()) return;
  const Scoped scope(context.training, false);
  const auto run = [&](TensorList inputs) { return call(inputs, {}); };
  if (trace_call(input_shapes, run).defined()) return;
  // Otherwise the children are built by one example, or when they are first called.
  if (std::ranges::all_of(input_shapes, known_but_for_batch))
    call_on_zeros(input_shapes, 1, true, run);
}

CallOptions LayerBase::default_options() const {
  if (context.training) return {.training = *context.training};
  note_setting(state_->training);
  return {.training = state_->training->load(std::memory_order_relaxed)};
}

void LayerBase::ensure_built(std::span<const Shape> input_shapes) {
  if (ready()) return;
  if (ReplicaContext* const replica = ReplicaContext::current())
    replica->build(identity(), [&] { build_in_turn(input_shapes); });
  else
    build_in_turn(input_shapes);
}

void LayerBase::build_in_turn(std::span<const Shape> input_shapes) {
  const BuildTurn turn(*state_, label());
  if (ready()) return;
  check_declared_shape(*this, input_shapes);
  place_children(children());
  const bool shared = built();  // another copy of the layer has made the variables
  if (shared) shared_weights_ = 0;
  try {
    const OutsideTrace outside_trace;
    build(input_shapes);
  } catch (...) {
    shared_weights_.reset();
    if (!shared) state_->variables.clear();  // a later attempt creates all of them again
    throw;
  }
  shared_weights_.reset();
  state_->built.store(true, std::memory_order_release);
  ready_.store(true, std::memory_order_release);
}

void LayerBase::place_children(std::span<const Layer> children) const {
  assign_unique_names(children, label());
  for (const Layer& child : children) place(child.base(), path(), state_->trainable);
}

Tensor LayerBase::call_in_trial(std::span<const Tensor> inputs) {
  const Scoped own_scope(context.own_call, nullptr);
  const Scoped scope(context.training, false);
  return call_in_dtypes(*this, inputs, {});
}

void LayerBase::mark_built(bool moves) {
  state_->moves = moves;
  state_->built.store(true, std::memory_order_release);
  ready_.store(true, std::memory_order_release);
}

void LayerBase::move_to(const std::string& path) {
  state_->path = path;
  for (const Variable& variable : state_->variables)
    variable.impl().rename(path + variable.name().substr(state_->prefix.size()));
  state_->prefix = path;
  state_->moves = false;
  for (const Layer& child : children()) child.base().move_to(path + "/" + child.name());
}

Layer LayerBase::borrowed() const {
  return std::shared_ptr<LayerBase>(std::shared_ptr<void>(), const_cast<LayerBase*>(this));
}

Variable LayerBase::next_shared(const std::string& name, const Shape& shape) {
  const std::vector<Variable>& made = state_->variables;
  if (*shared_weights_ < made.size()) {
    const Variable& variable = made[(*shared_weights_)++];
    if (variable.shape() == shape) return variable;
  }
  fail<FailedPreconditionError>(
      "[{}] copies of a layer share their variables, but build() of this copy asks for a variable "
      "'{}' of shape {} that the layer does not have; make another layer, not a copy",
      label(), name, shape.to_string());
}

Variable LayerBase::add_weight(const std::string& name, const Shape& shape,
                               const Initializer& initializer, VariableOptions options,
                               std::optional<DType> dtype) {
  if (shared_weights_) return next_shared(name, shape);
  state_->prefix = path().empty() ? label() : path();
  options.name = state_->prefix + "/" + name;
  Variable& made = state_->variables.emplace_back(
      initializer(shape, dtype.value_or(dtype_policy().variable_dtype())), std::move(options));
  made.impl().set_of_layer();
  made.impl().set_frozen(!state_->trainable);
  return made;
}

void LayerBase::regularize(const Variable& variable, const Regularizer& regularizer) {
  if (!regularizer.defined()) return;
  for (const auto& [regularized, penalty] : state_->penalties)
    if (&regularized.impl() == &variable.impl()) return;  // by an earlier copy of the layer
  state_->penalties.emplace_back(variable, regularizer);
}

std::vector<Tensor> LayerBase::losses() const {
  std::vector<Tensor> result;
  std::unordered_set<const void*> seen;
  visit_tree(*this, seen, [&](const LayerBase& layer) {
    for (const auto& [variable, penalty] : layer.state_->penalties)
      if (variable.trainable()) result.push_back(penalty(variable.value()));
  });
  return result;
}

void LayerBase::convert_dtype_policy(const DTypePolicy& policy) {
  for (const Variable& variable : state_->variables)
    if (variable.impl().options().trainable && is_floating(variable.dtype()))
      variable.impl().convert(policy.variable_dtype());
  state_->dtype_policy = policy;
}

void LayerBase::set_dtype_policy(const DTypePolicy& policy) {
  for (const Variable& variable : state_->variables)
    if (is_floating(variable.dtype()) && policy.variable_dtype() != dtype_policy().variable_dtype())
      fail<FailedPreconditionError>(
          "[{}] the layer has {} variables: its dtype policy cannot become '{}'", label(),
          name_of(variable.dtype()), policy.name());
  for (const Layer& child : children()) child.base().set_dtype_policy(policy);
  state_->dtype_policy = policy;
}

std::vector<Variable> LayerBase::variables() const {
  return variables_where(*this, [](bool) { return true; });
}

std::vector<Variable> LayerBase::trainable_variables() const {
  return variables_where(*this, [](bool trainable) { return trainable; });
}

std::vector<Variable> LayerBase::non_trainable_variables() const {
  return variables_where(*this, [](bool trainable) { return !trainable; });
}

Layer::Layer(std::shared_ptr<LayerBase> layer, int) : layer_(std::move(layer)) {
  trainable.owner_ = layer_.get();
}

Layer& Layer::operator=(const Layer& other) {
  layer_ = other.layer_;
  trainable.owner_ = layer_.get();
  return *this;
}

Layer& Layer::operator=(Layer&& other) noexcept {
  layer_ = std::move(other.layer_);
  trainable.owner_ = layer_.get();
  other.trainable.owner_ = other.layer_.get();
  return *this;
}

LayerBase& Layer::base() const {
  if (!layer_) throw FailedPreconditionError("[Layer] an undefined layer was used");
  return *layer_;
}

Tensor Layer::operator()(const Tensor& input) const { return (*this)(std::span(&input, 1)); }

Tensor Layer::operator()(const Tensor& input, const CallOptions& options) const {
  return (*this)(std::span(&input, 1), options);
}

Tensor Layer::operator()(TensorList inputs) const {
  return (*this)(inputs, base().default_options());
}

Tensor Layer::operator()(TensorList inputs, const CallOptions& options) const {
  LayerBase& layer = base();
  const CallOfOwnLayer* const caller = context.own_call;
  if (caller) caller->before_child(*this);
  const Scoped own_scope(context.own_call, nullptr);
  const Scoped scope(context.layer, layer.path().empty() ? &layer.name() : &layer.path());
  try {
    if (!layer.ready()) {
      std::vector<Shape> shapes;
      for (const Tensor& input : inputs) shapes.push_back(with_unknown_batch(input.shape()));
      layer.ensure_built(shapes);
    } else if (ReplicaContext* const replica = ReplicaContext::current()) {
      replica->find_built(layer.identity());
    }
    if (caller) caller->after_building_child(*this);
    const auto& [training] = options;
    const Scoped options_scope(context.training, training);
    return call_in_dtypes(layer, inputs, options);
  } catch (const Error& error) {
    rethrow_from(layer, inputs, error);
  }
}

std::vector<Variable> Layer::variables() const { return base().variables(); }
std::vector<Variable> Layer::trainable_variables() const { return base().trainable_variables(); }
std::vector<Variable> Layer::non_trainable_variables() const {
  return base().non_trainable_variables();
}

}  // namespace tandem
