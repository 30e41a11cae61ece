#include "nn/key_value_cache.h"

#include "core/scoped.h"
#include "core/status.h"
#include "ops/array/array_ops.h"
#include "runtime/replica_context.h"
#include "runtime/trace.h"
#include "runtime/variable_impl.h"
#include "tandem/array.h"
#include "tandem/autodiff.h"
#include "tandem/creation.h"
#include "tandem/math.h"

namespace tandem {
namespace {

Tensor numbers(std::int64_t count) { return range(count, {.dtype = int64}); }

Variable zeros_of(const char* name, const Shape& shape, DType dtype) {
  const OutsideTrace outside_trace;
  return Variable(zeros(shape, {.dtype = dtype}), {.trainable = false, .name = name});
}

// Writes `rows` [batch, added, ...] to `memory` [batch, capacity, ...] from position `first` on.
void write(Variable& memory, const Tensor& rows, const Tensor& first) {
  VariableImpl& variable = memory.impl();
  for (std::size_t copy = 0; copy < variable.storage().num_places(); ++copy)
    assign_slice(variable.memory(copy), rows, first, 1);
}

}  // namespace

KeyValueCache::KeyValueCache(std::int64_t capacity) : impl_(std::make_shared<Impl>(capacity)) {
  if (capacity <= 0)
    fail<InvalidArgumentError>("[KeyValueCache] expected a positive capacity, got {}", capacity);
}

Tensor KeyValueCache::operator()(const Layer& model, const Tensor& input) const {
  if (!model.built())
    fail<FailedPreconditionError>(
        "[KeyValueCache] expected a model with variables, got '{}', which was not built: call or "
        "build it first",
        model.name());
  if (context.graph && !context.trace)
    fail<UnimplementedError>(
        "[KeyValueCache] a call in the graph of a session would not change the cache; call '{}' "
        "eagerly or in a function",
        model.name());
  if (ReplicaContext::current())
    fail<UnimplementedError>(
        "[KeyValueCache] a replica of a strategy cannot keep positions; call '{}' outside of run()",
        model.name());
  const NoGradScope no_grad;
  const Scoped open(open_key_values, static_cast<KeyValuesNumber*>(impl_.get()));
  return model(input, {.training = false});
}

void KeyValueCache::reset() const {
  for (auto& [layer, state] : impl_->layers) state.position.assign(zeros({}, {.dtype = int64}));
}

std::int64_t KeyValueCache::capacity() const { return impl_->capacity; }

Tensor KeyValueCache::Impl::next_positions(const LayerBase& layer, std::int64_t added) {
  Variable& position = layers[&layer].position;
  if (!position.defined()) position = zeros_of("key_value_cache/position", {}, int64);
  // Gathering throws for positions beyond the capacity.
  const Tensor positions = gather(numbers(capacity), position.value() + numbers(added));
  position.assign_add(full({}, added, {.dtype = int64}));
  return positions;
}

KeyValueCache::Impl::Attended KeyValueCache::Impl::add(const LayerBase& layer, const Tensor& keys,
                                                       const Tensor& values) {
  const std::int64_t added = keys.shape().word(1);
  const Tensor positions = next_positions(layer, added);
  const Tensor first = positions[0];
  OfLayer& state = layers.at(&layer);
  for (const auto& [memory, rows] :
       {std::pair(&state.keys, &keys), std::pair(&state.values, &values)}) {
    Shape all = rows->shape();
    all.set(1, capacity);
    if (!memory->defined()) *memory = zeros_of("key_value_cache/rows", all, rows->dtype());
    if (memory->shape() != all || memory->dtype() != rows->dtype())
      fail<InvalidArgumentError>(
          "[KeyValueCache] expected keys and values of shape {} and dtype {}, as in the first "
          "call, got {} and {}",
          memory->shape().to_string(), name_of(memory->dtype()), all.to_string(),
          name_of(rows->dtype()));
    write(*memory, *rows, first);
  }
  return {.keys = state.keys.value(),
          .values = state.values.value(),
          .mask = less_equal(numbers(capacity), reshape(positions, {added, 1}))};
}

}  // namespace tandem
