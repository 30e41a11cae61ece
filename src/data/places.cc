// The places of the random transformations of a pipeline.
#include <algorithm>
#include <map>
#include <set>

#include "core/status.h"
#include "data/node.h"
#include "data/splitmix.h"
#include "data/worker_seeds.h"
#include "op/context.h"
#include "runtime/generator.h"

namespace tandem::data {
namespace {

using Nodes = std::set<const DatasetNode*>;

// The nodes of pipelines.
struct Collected {
  Nodes nodes;
  bool random = false;
  std::uint64_t hidden = 0;  // the numbers of all hidden ones; 0: there are none

  void add(const DatasetNode& node) {
    if (!nodes.insert(&node).second) return;
    random = random || node.is_random();
    if (const std::uint64_t number = node.hidden(); number != 0) hidden = mix(hidden, number);
    for (const NodePtr& input : node.inputs()) add(*input);
  }
};

Collected nodes_of(const DatasetNode& node) {
  Collected all;
  all.add(node);
  return all;
}

// Moves a pipeline. Nodes that it has twice it has twice afterwards.
class Mover {
 public:
  // `kept` have the places that they have.
  Mover(const PlaceChange& change, const Nodes& kept) : change_(change), kept_(kept) {}

  NodePtr operator()(const NodePtr& node) {
    if (kept_.count(node.get()) > 0) return node;
    const auto [found, added] = moved_.try_emplace(node.get());
    if (!added) return found->second;
    std::vector<NodePtr> inputs = node->inputs();
    bool changed = node->is_random();
    for (NodePtr& input : inputs) {
      NodePtr moved = (*this)(input);
      changed = changed || moved != input;
      input = std::move(moved);
    }
    return moved_[node.get()] = changed ? node->moved(std::move(inputs), change_) : node;
  }

 private:
  PlaceChange change_;
  const Nodes& kept_;
  std::map<const DatasetNode*, NodePtr> moved_;
};

}  // namespace

TransformationSeed::TransformationSeed(const DatasetNode& input)
    : base_(Generator::process().state().seed),
      place_(input.depth()),
      shard_(input.shard_seed()),
      worker_(context.worker),
      source_(nodes_of(input).hidden) {}  // places before it may be any

std::uint64_t TransformationSeed::value() const {
  if (!place_) return base_;
  std::uint64_t seed = mix(base_, static_cast<std::uint64_t>(*place_) + 1);
  if (shard_ != 0) seed = mix(seed, shard_);
  if (source_ != 0) seed = mix(seed, source_);
  return seed_of_worker(seed, worker_);
}

TransformationSeed TransformationSeed::moved(const PlaceChange& change) const {
  TransformationSeed moved = *this;
  if (!place_) return moved;
  *moved.place_ += change.offset;
  if (change.source != 0)
    moved.source_ = source_ == 0 ? change.source : mix(source_, change.source);
  return moved;
}

NodePtr DatasetNode::moved(std::vector<NodePtr>, const PlaceChange&) const {
  fail<InternalError>("[Dataset] a source without random numbers has no place");
}

JoinedDatasets join(std::vector<NodePtr> inputs) {
  Collected before;
  int depth = 0;
  for (NodePtr& input : inputs) {
    const NodePtr whole = input;
    if (before.random) {
      PlaceChange change{.offset = depth + 1};
      // An offset is not enough where places are not known. Those of earlier joins are smaller.
      if (before.hidden != 0 || nodes_of(*whole).hidden != 0)
        change.source = mix(0, static_cast<std::uint64_t>(change.offset));
      input = Mover(change, before.nodes)(whole);
    }
    const int own = whole->depth() + (input == whole ? 0 : depth + 1);
    for (const NodePtr& node : {whole, input}) before.add(*node);
    depth = std::max(depth, own);
  }
  return {std::move(inputs), depth + 1};
}

NodePtr at_other_places(const NodePtr& node, const PlaceChange& change) {
  return Mover(change, Nodes())(node);
}

}  // namespace tandem::data
