// Splits a traced function into the part that a worker runs and the updates that servers apply.
#pragma once

#include <functional>
#include <vector>

#include "function/traced_function.h"
#include "op/attributes.h"
#include "ps/shards.h"

namespace tandem::ps {

struct SplitFunction {
  proto::Function message;
  // The nodes of the trace whose attributes the coordinator computes for each run: of the worker's
  // part, and of each update (null: it has none).
  std::vector<const Node*> worker_attributes;
  std::vector<const Node*> update_attributes;
};

// The shards of a captured variable, in the order of their rows. Throws if it is not a variable of
// the servers.
using ShardsOf = std::function<std::vector<Shard>(const Resource&)>;

// An operation that writes a variable is an update. All else runs on the worker, which reads each
// variable once, before it runs; but a value that is assigned and depends element by element on the
// variable's present one (assign_add) is part of the update.
//
// An update of a variable with several shards becomes one update per shard, with the rows of the
// shard of all operands that have the variable's rows.
//
// Throws UnimplementedError, with the operation's name, for a function that reads a variable after
// an update of it, that writes variables in branches or loops, that takes elements from iterators
// that are not arguments, that updates variables of several servers in one operation, or that
// updates a variable of several shards by an operation that does not act element by element.
SplitFunction split(const TracedFunction& function, const ShardsOf& shards_of);

// The attributes of the node in a run that starts now.
proto::RunAttributes attributes_of_run(const Node& node);

}  // namespace tandem::ps
