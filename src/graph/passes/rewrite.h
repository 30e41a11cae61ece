// Helpers of passes: users of values, and replacing values.
#pragma once

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "graph/block.h"

namespace tandem {

// The number of operations and fetches that use each value's memory, directly or through views.
inline std::unordered_map<const Value*, int> count_uses(const Block& block) {
  std::unordered_map<const Value*, int> uses;
  for (const auto& operation : block.operations)
    for (const Value* input : operation->inputs) ++uses[&input->root()];
  for (const Value* fetch : block.fetches) ++uses[&fetch->root()];
  return uses;
}

// Replaces `from` with `to`, of the same size, in all its users and views.
inline void replace_value(Block& block, Value& from, Value& to) {
  for (const auto& value : block.values)
    if (value->base == &from) {
      value->base = &to.root();
      value->offset += to.offset;
    }
  const auto replace = [&](Value*& use) {
    if (use == &from) use = &to;
  };
  for (const auto& operation : block.operations) {
    std::for_each(operation->inputs.begin(), operation->inputs.end(), replace);
    if (operation->copied_from && operation->copied_from == from.producer)
      operation->copied_from = to.root().producer;
  }
  std::for_each(block.fetches.begin(), block.fetches.end(), replace);
}

// Whether the operation may be removed if its results are unused, or merged with an equal one.
inline bool is_pure(const BlockOperation& operation) {
  return operation.op->mutated_inputs == 0 && !operation.has(kStateful) &&
         !operation.outputs.empty();
}

inline void erase_operations(Block& block, const std::unordered_set<const BlockOperation*>& gone) {
  std::erase_if(block.operations, [&](const auto& each) { return gone.count(each.get()) > 0; });
}

}  // namespace tandem
