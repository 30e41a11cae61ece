#include "function/context_key.h"

#include "op/numerics.h"
#include "runtime/open_key_values.h"
#include "runtime/placement.h"
#include "runtime/replica_context.h"
#include "runtime/replica_invariance.h"

namespace tandem {
namespace {

void add_device(const DeviceName& name, detail::FunctionCall& call) {
  call.add_to_key(name.job ? std::string_view(*name.job) : std::string_view());
  call.add_to_key(static_cast<std::uint64_t>(name.replica.value_or(-1)));
  call.add_to_key(static_cast<std::uint64_t>(name.task.value_or(-1)));
  call.add_to_key(name.type ? std::string_view(*name.type) : std::string_view());
  call.add_to_key(static_cast<std::uint64_t>(name.id.value_or(-1)));
}

}  // namespace

// The key lacks: graph, trace and traced_gradients, because calls in a trace become part of it;
// what runs read (generator, cancelled); what is for messages alone (differentiated, layer,
// first_element); what makes variables, layers and pipelines, which a trace does once (strategy,
// runner, creator, own_call, worker); what only backward passes, optimizers and metrics have; and
// copies, whose variables a trace refuses to read.
void add_to_key(const Context& context, detail::FunctionCall& call) {
  const auto& [records, tapes, traced_gradients, differentiated, gradient_buffers, after_backward,
               open_buffer, graph, trace, attr_update, colocated_with, placement, autocast,
               cast_cache, weight_dtype, strategy, runner, replica, creator, copies, generator,
               weighted_by_examples, layer, training, own_call, nested_sums, cancelled, worker,
               first_element] = context;
  // Under an outer tape, tapes in the function record their backward passes.
  const std::uint64_t recording = !records ? 0 : tapes > 0 ? 2 : 1;
  call.add_to_key(recording << 1 | (checks_numerics() ? 1 : 0));
  call.add_to_key(static_cast<std::uint64_t>(invariant_parts()));
  call.add_to_key(open_key_values ? open_key_values->number : 0);
  call.add_to_key(std::uint64_t{weighted_by_examples});
  // Reads of weights in a layer with a mixed policy are casts.
  call.add_to_key(weight_dtype ? 1 + static_cast<std::uint64_t>(*weight_dtype) : 0);
  // Layers without options of their own have those of the enclosing call.
  call.add_to_key(training ? 1 + std::uint64_t{*training} : 0);
  call.add_to_key(!autocast ? std::uint64_t{0}
                            : 1 + (static_cast<std::uint64_t>(autocast->dtype) << 1 |
                                   static_cast<std::uint64_t>(autocast->device)));
  call.add_to_key(std::uint64_t{placement != nullptr} << 1 | std::uint64_t{replica != nullptr});
  if (placement) add_device(*placement->name, call);
  if (replica) replica->add_to_key(call.key);
}

}  // namespace tandem
