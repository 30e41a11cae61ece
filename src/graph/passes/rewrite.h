// What passes share: who uses which value, and replacing one by another.
#pragma once

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "graph/block.h"

namespace tandem {

// How many operations and fetches use each value's memory, itself or through views.
inline std::unordered_map<const Value*, int> count_uses(const Block& block) {
  std::unordered_map<const Value*, int> uses;
  for (const auto& operation : block.operations)
    for (const Value* input : operation->inputs) ++uses[&input->root()];
  for (const Value* fetch : block.fetches) ++uses[&fetch->root()];
  return uses;
}

// Whoever used `from` (as it is or through views) uses `to`, of the same size, instead.
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
    if (operation->behind && operation->behind == from.producer) operation->behind = to.producer;
  }
  std::for_each(block.fetches.begin(), block.fetches.end(), replace);
}

// Whether the operation may be left out or merged when its results allow it.
inline bool is_pure(const Operation& operation) {
  return operation.op->mutated_inputs == 0 && !operation.has(kStateful) &&
         !operation.outputs.empty();
}

inline void erase_operations(Block& block, const std::unordered_set<const Operation*>& gone) {
  std::erase_if(block.operations, [&](const auto& each) { return gone.count(each.get()) > 0; });
}

}  // namespace tandem
