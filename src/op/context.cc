#include "op/context.h"

namespace tandem {

constinit thread_local Context context;

// The worker has no part in what is not thread-safe: graphs, traces, backward passes, caches and
// sums. The work sets its own device, replica, copies of variables and generator.
Context for_worker(const Context& caller) {
  const auto& [records, tapes, traced_gradients, differentiated, gradient_buffers, after_backward,
               open_buffer, graph, trace, attr_update, colocated_with, placement, autocast,
               cast_cache, weight_dtype, strategy, runner, replica, creator, copies, generator,
               weighted_by_examples, layer, training, own_call, nested_sums, cancelled, worker,
               first_element] = caller;
  return {.records = records,
          .tapes = tapes,
          .differentiated = differentiated,
          .autocast = autocast,
          .weight_dtype = weight_dtype,
          .strategy = strategy,
          .runner = runner,
          .weighted_by_examples = weighted_by_examples,
          .layer = layer,
          .training = training,
          .own_call = own_call,
          .cancelled = cancelled,
          .worker = worker};
}

}  // namespace tandem
