#include "sync/part_writes.h"

#include <algorithm>

#include "core/status.h"
#include "runtime/placement.h"
#include "runtime/replica_invariance.h"
#include "tandem/autodiff.h"
#include "tandem/math.h"

namespace tandem {
namespace {

constexpr const char* kName = "for_each_part";

void check_aggregation(const VariableImpl& variable) {
  if (variable.shared())
    fail<UnimplementedError>(
        "[{}] variable {} is assigned to inside a part; replicas that share one copy do not "
        "support that, because each part would need its own. Use MirroredStrategy, or return the "
        "value",
        kName, quoted_name(variable));
  const VariableOptions& options = variable.options();
  if (options.aggregation == VariableAggregation::kNone)
    fail<InvalidArgumentError>(
        "[{}] variable {} is assigned to inside a part and has VariableAggregation::kNone, "
        "expected "
        "kSum, kMean or kOnlyFirstReplica: what the parts write becomes one value",
        kName, quoted_name(variable));
  if (options.synchronization == VariableSynchronization::kOnRead &&
      options.aggregation == VariableAggregation::kSum)
    fail<UnimplementedError>(
        "[{}] variable {} is assigned to inside a part; kOnRead with kSum is not supported there, "
        "because each part would need its own copy. Use a Metric, or return the value",
        kName, quoted_name(variable));
}

void write_copy(VariableImpl& variable, std::size_t copy, const Tensor& value) {
  const OnDevice on(variable.storage().home(copy));
  variable.write(copy, value);
}

// The number of parts of the global batch that have examples.
double parts_with_examples(const ReplicaContext* replica, int here) {
  if (!replica) return here;
  const std::int64_t total = replica->global_examples();
  return static_cast<double>(total < 0 ? invariant_parts()
                                       : std::min<std::int64_t>(invariant_parts(), total));
}

}  // namespace

bool PartWrites::only_first(const Write& write) const {
  return write.variable->options().aggregation == VariableAggregation::kOnlyFirstReplica;
}

void PartWrites::begin(VariableImpl& variable) {
  const auto found = std::find_if(writes_.begin(), writes_.end(), [&](const Write& write) {
    return write.variable.get() == &variable;
  });
  if (found != writes_.end()) {
    found->in_part = true;
    return;
  }
  check_aggregation(variable);
  if (parts_ > 0)
    fail<InvalidArgumentError>(
        "[{}] variable {} is assigned to in one part and was not in those before it; expected the "
        "same assignments in each part",
        kName, quoted_name(variable));
  const std::size_t copy = variable.local_index();
  writes_.push_back({.variable = RefPtr<VariableImpl>(&variable),
                     .copy = copy,
                     .before = variable.read(copy),
                     .in_part = true,
                     .sum = {},
                     .first = {}});
}

void PartWrites::end_part() {
  const NoGradScope no_grad;
  for (Write& write : writes_) {
    if (!std::exchange(write.in_part, false))
      fail<InvalidArgumentError>(
          "[{}] variable {} is assigned to in one part and not in a later one; expected the same "
          "assignments in each part",
          kName, quoted_name(*write.variable));
    const Tensor value = write.variable->read(write.copy);
    if (!only_first(write))
      write.sum.add(value);
    else if (parts_ == 0)
      write.first = value;
    write_copy(*write.variable, write.copy, write.before);
  }
  ++parts_;
}

void PartWrites::finish(ReplicaContext* replica) {
  if (writes_.empty()) return;
  const NoGradScope no_grad;
  const bool alone = !replica || replica->num_replicas() == 1;
  std::vector<Tensor> totals;
  for (Write& write : writes_)
    if (!only_first(write)) totals.push_back(write.sum.total());
  if (!alone && !totals.empty()) totals = replica->all_reduce(totals, ReduceOp::kTreeSum);
  auto total = totals.begin();
  const double parts = parts_with_examples(replica, parts_);
  for (Write& write : writes_) {
    VariableImpl& variable = *write.variable;
    Tensor value;
    if (only_first(write)) {
      value = alone ? write.first : replica->broadcast(write.first);
    } else {
      value = *total++;
      const OnDeviceOf on(value);
      if (variable.options().aggregation == VariableAggregation::kMean) value = value / parts;
    }
    write_copy(variable, write.copy, value);
    if (!replica) continue;
    const Variable written(write.variable);
    replica->end_write({&written, 1});
    replica->run_for_idle_replicas([&] { write_copy(variable, variable.local_index(), value); });
  }
}

}  // namespace tandem
