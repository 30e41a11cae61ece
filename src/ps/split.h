// Splits a traced function into the part that a worker runs and the updates that servers apply.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "op/attribute_fields.h"
#include "ps/proto/function.pb.h"
#include "runtime/traced_function.h"

namespace tandem::ps {

// A variable of a parameter server strategy. The same in all tasks. The upper half is the index of
// the server that holds it.
using VariableId = std::uint64_t;

constexpr VariableId variable_id(std::uint32_t server, std::uint32_t number) {
  return VariableId{server} << 32 | number;
}
constexpr std::uint32_t server_of(VariableId id) { return static_cast<std::uint32_t>(id >> 32); }

struct SplitFunction {
  proto::Function message;
  // The nodes of the trace whose attributes the coordinator computes for each run: of the worker's
  // part, and of each update (null: it has none).
  std::vector<const Node*> worker_attributes;
  std::vector<const Node*> update_attributes;
};

// An operation that writes a variable is an update. All else runs on the worker, which reads each
// variable once, before it runs; but a value that is assigned and depends element by element on the
// variable's present one (assign_add) is part of the update. `id_of` returns the id of a captured
// variable, and throws if it has none.
//
// Throws UnimplementedError, with the operation's name, for a function that reads a variable after
// an update of it, that writes variables in branches or loops, or that takes elements from
// iterators that are not arguments.
SplitFunction split(const TracedFunction& function,
                    const std::function<VariableId(const Resource&)>& id_of);

// The attributes of the node in a run that starts now.
proto::RunAttributes attributes_of_run(const Node& node);

}  // namespace tandem::ps
