// Layers of users with Keras's signatures.
#include "nn/own_layer.h"

#include <cxxabi.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <cstdlib>
#include <mutex>
#include <typeinfo>

#include "core/mutex.h"
#include "core/status.h"
#include "nn/trial.h"
#include "nn/type_name.h"
#include "op/context.h"

namespace tandem {

std::string snake_case_name(const std::type_info& type) {
  int status = 0;
  char* const demangled = abi::__cxa_demangle(type.name(), nullptr, nullptr, &status);
  std::string name = status == 0 && demangled ? demangled : type.name();
  std::free(demangled);
  name = name.substr(0, name.find('<'));
  if (const std::size_t colon = name.rfind("::"); colon != std::string::npos)
    name = name.substr(colon + 2);
  std::string snake;
  for (std::size_t i = 0; i < name.size(); ++i) {
    const auto c = static_cast<unsigned char>(name[i]);
    if (std::isalnum(c) == 0 && c != '_') continue;
    const bool upper = std::isupper(c) != 0;
    const bool after_lower = i > 0 && std::islower(static_cast<unsigned char>(name[i - 1])) != 0;
    const bool before_lower = i > 0 && i + 1 < name.size() &&
                              std::isupper(static_cast<unsigned char>(name[i - 1])) != 0 &&
                              std::islower(static_cast<unsigned char>(name[i + 1])) != 0;
    if (upper && (after_lower || before_lower)) snake += '_';
    snake += static_cast<char>(std::tolower(c));
  }
  return snake.empty() ? "layer" : snake;
}

namespace layers {

// The knowledge of a layer that its copies share.
struct Layer::Found {
  std::string kind;  // of the class; set before a child without its class refers to the layer
  std::mutex mutex;
  const HeldAtFork held_at_fork{mutex};
  std::vector<tandem::Layer> children;
  // The children do not change any more.
  std::atomic<bool> complete = false;
};

namespace {

bool contains(const std::vector<tandem::Layer>& layers, const tandem::Layer& layer) {
  return std::any_of(layers.begin(), layers.end(), [&](const tandem::Layer& other) {
    return other.base().identity() == layer.base().identity();
  });
}

}  // namespace

Layer::Layer() : Layer(SimpleOptions()) {}

Layer::Layer(const SimpleOptions& options)
    : LayerBase(options.name), found_(std::make_shared<Found>()) {
  declare_input_shape(options.input_shape);
  if (options.dtype.defined()) set_dtype_policy(options.dtype);
}

void Layer::build(const Shape&) {}
void Layer::build(const std::vector<Shape>&) {}

Tensor Layer::call(const Tensor&) {
  fail<UnimplementedError>(
      "[{}] the layer was called with one input: expected a class that overrides "
      "td::Tensor call(const td::Tensor& inputs)",
      label());
}

Tensor Layer::call(const std::vector<Tensor>& inputs) {
  fail<UnimplementedError>(
      "[{}] the layer was called with {} inputs: expected a class that overrides "
      "td::Tensor call(const std::vector<td::Tensor>& inputs)",
      label(), inputs.size());
}

Tensor Layer::call(const Tensor& inputs, bool) { return call(inputs); }
Tensor Layer::call(const std::vector<Tensor>& inputs, bool) { return call(inputs); }

Tensor Layer::operator()(const Tensor& input) const { return borrowed()(input); }
Tensor Layer::operator()(const Tensor& input, const CallOptions& options) const {
  return borrowed()(input, options);
}
Tensor Layer::operator()(TensorList inputs) const { return borrowed()(inputs); }
Tensor Layer::operator()(TensorList inputs, const CallOptions& options) const {
  return borrowed()(inputs, options);
}

std::string Layer::kind() const {
  const std::type_info& type = typeid(*this);
  return type == typeid(Layer) && !found_->kind.empty() ? found_->kind : snake_case_name(type);
}

std::vector<tandem::Layer> Layer::children() const {
  const std::lock_guard lock(found_->mutex);
  return found_->children;
}

Variable Layer::add_weight(const WeightOptions& options) {
  if (!options.shape.known())
    fail<InvalidArgumentError>("[{}] add_weight() expected a shape, got none", label());
  std::string name = options.name;
  if (name.empty()) {
    const std::size_t number = own_variables().size();
    name = number == 0 ? "weight" : fmt::format("weight_{}", number);
  }
  const Variable made = add_weight(name, options.shape, options.initializer,
                                   {.trainable = options.trainable}, options.dtype);
  regularize(made, options.regularizer);
  return made;
}

// Calls of this layer, while they run.
class CallOfLayer final : public CallOfOwnLayer {
 public:
  explicit CallOfLayer(Layer& layer) : layer_(layer) {}
  void before_child(const tandem::Layer& child) const override { layer_.adopt(child); }
  void after_building_child(const tandem::Layer& child) const override {
    layer_.require_known(child);
  }

 private:
  Layer& layer_;
};

bool Layer::has(const tandem::Layer& child) const {
  if (found_->complete.load(std::memory_order_acquire) && contains(found_->children, child))
    return true;
  return contains(children(), child);
}

void Layer::adopt(const tandem::Layer& child) {
  if (found_->complete.load(std::memory_order_acquire) || has(child)) return;
  // Layers that are members of the object move with it: the child shares what they are.
  tandem::Layer kept = child;
  if (auto* own = dynamic_cast<Layer*>(&child.base()); own && child.shared().use_count() == 0) {
    own->found_->kind = own->kind();
    kept = std::make_shared<Layer>(static_cast<const Layer&>(*own));
  }
  const std::lock_guard lock(found_->mutex);
  if (contains(found_->children, kept)) return;
  std::vector<tandem::Layer> all = found_->children;
  all.push_back(kept);
  place_children(all);
  found_->children = std::move(all);
}

void Layer::require_known(const tandem::Layer& child) {
  if (!found_->complete.load(std::memory_order_acquire) || has(child)) return;
  if (child.variables().empty()) return;
  fail<FailedPreconditionError>(
      "[{0}] call() uses the layer '{1}' for the first time after '{0}' was built, and training "
      "would leave out its variables: use the layer in every call, or list it in children()",
      label(), child.base().label());
}

Tensor Layer::call(std::span<const Tensor> inputs, const CallOptions& options) {
  const CallOfLayer scope(*this);
  const Scoped call_scope(context.own_call, &scope);
  const Tensor result = inputs.size() == 1 ? call(inputs.front(), options.training)
                                           : call(std::vector<Tensor>(inputs.begin(), inputs.end()),
                                                  options.training);
  if (!found_->complete.load(std::memory_order_relaxed))
    found_->complete.store(true, std::memory_order_release);
  return result;
}

void Layer::build(std::span<const Shape> input_shapes) {
  if (input_shapes.size() == 1)
    build(input_shapes.front());
  else
    build(std::vector<Shape>(input_shapes.begin(), input_shapes.end()));
  // A layer that takes neither finds its children when it is called.
  if (!found_->complete && !trace_call(input_shapes, trial()).defined() &&
      std::ranges::all_of(input_shapes, known_but_for_batch))
    static_cast<void>(call_on_zeros(input_shapes, 1, false, trial()));
}

Shape Layer::compute_output_shape(const Shape& input_shape) const {
  return shape_of_call({&input_shape, 1}, trial());
}

Shape Layer::output_shape(std::span<const Shape> input_shapes) const {
  if (!ready()) {
    auto& self = const_cast<Layer&>(*this);
    const bool first = !built();
    self.ensure_built(input_shapes);
    if (first) self.mark_built(true);  // it gets its name later
  }
  return input_shapes.size() == 1 ? compute_output_shape(input_shapes.front())
                                  : shape_of_call(input_shapes, trial());
}

std::function<Tensor(TensorList)> Layer::trial() const {
  return
      [self = const_cast<Layer*>(this)](TensorList inputs) { return self->call_in_trial(inputs); };
}

}  // namespace layers
}  // namespace tandem
