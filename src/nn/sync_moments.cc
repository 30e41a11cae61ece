#include "nn/sync_moments.h"

#include "core/status.h"
#include "graph/graph.h"
#include "op/context.h"
#include "op/record.h"
#include "ops/nn/batch_norm.h"
#include "runtime/replica_context.h"
#include "tandem/array.h"
#include "tandem/autodiff.h"
#include "tandem/math.h"

namespace tandem {
namespace {

// --- a sum over ranks that has a gradient ---

struct SumAttrs {
  comm::ProcessGroup group;
  bool weighted = false;
  TANDEM_FIELDS()
};

Tensor sum_over_ranks(const Tensor& x, const Tensor& rows, const SumAttrs& attrs);

// The loss of the job depends on the sum through every rank. If the ranks' losses are weighted by
// their examples, other code multiplies this rank's gradients by its weight after the backward
// pass; the other ranks' terms, which need their own weights, are multiplied by the ratio of the
// weights.
void sum_gradient(GradContext& c) {
  const auto& attrs = c.attrs<SumAttrs>();
  const Tensor& rows = c.input(1);
  if (!attrs.weighted) return c.set_grad(0, sum_over_ranks(c.grad(), rows, attrs));
  c.set_grad(0, sum_over_ranks(c.grad() * rows, rows, {attrs.group}) / maximum(rows, 1.0));
}

// Only recorded: the sum itself is a collective.
const OpDef kSumOverRanks = {.name = "SumOverRanks",
                             .attrs = &attrs_type<SumAttrs>,
                             .gradient = sum_gradient,
                             .saved_inputs = 0b10};

Tensor sum_now(const Tensor& x, const comm::ProcessGroup& group) {
  const NoGradScope no_grad;
  ReplicaContext* replica = group.impl() ? nullptr : ReplicaContext::current();
  if (replica) return replica->all_reduce({&x, 1}, ReduceOp::kSum).front();
  return comm::all_reduce(x.detach(), {.group = group});
}

// `rows`: of this rank's batch.
Tensor sum_over_ranks(const Tensor& x, const Tensor& rows, const SumAttrs& attrs) {
  // In the body of a loop or branch, tensors of outside are captured.
  const Tensor own = context.graph && context.graph->outer() ? context.graph->local(x) : x;
  Tensor sum = sum_now(own, attrs.group);
  if (!context.records || !is_tracked(own)) return sum;
  const Tensor* inputs[] = {&own, &rows};
  record(kSumOverRanks, attrs, inputs, {&sum, 1}, context.graph ? nullptr : &impl_of(sum).device());
  return sum;
}

void require_support(const comm::ProcessGroup& group, std::string_view op) {
  const ReplicaContext* replica = group.impl() ? nullptr : ReplicaContext::current();
  if (replica && replica->part() >= 0)
    fail<UnimplementedError>(
        "[{}] the replica-invariant mode (config::set_replica_invariant_parts) computes parts of "
        "the batch one after the other, which have no common moments",
        op);
  if (context.graph && context.graph->for_sessions)
    fail<UnimplementedError>("[{}] graphs for sessions do not support moments over ranks", op);
}

}  // namespace

int sync_size(const comm::ProcessGroup& group) {
  if (group.impl()) return group.size();
  if (const ReplicaContext* context = ReplicaContext::current()) return context->num_replicas();
  return comm::is_initialized() ? comm::get_world_size() : 1;
}

// Sums of float64: the square of the mean is subtracted from the mean of squares, which takes away
// digits that float32 does not have to spare.
SyncMoments sync_moments(const Tensor& x, const comm::ProcessGroup& group, std::string_view op) {
  const BatchMoments own = batch_moments(x);
  const Tensor rows = reshape(own.rows, {1});
  const Tensor mean = cast(own.mean, float64), variance = cast(own.variance, float64);
  Tensor sums = concat({rows, mean * rows, (variance + square(mean)) * rows}, 0);
  if (sync_size(group) > 1) {
    require_support(group, op);
    sums = sum_over_ranks(sums, rows, {group, context.weighted_by_examples});
  }
  const std::int64_t channels = own.mean.size_word(0);
  const Tensor count = slice(sums, {0}, {1}), divisor = maximum(count, 1.0);
  const Tensor mean_of_all = slice(sums, {1}, {channels}) / divisor;
  const Tensor square_of_all = slice(sums, {1 + channels}, {channels}) / divisor;
  const DType dtype = own.mean.dtype();
  return {.count = count.detach(),
          .mean = cast(mean_of_all, dtype),
          .variance = cast(maximum(square_of_all - square(mean_of_all), 0.0), dtype)};
}

}  // namespace tandem
