// The context of a thread: all that its operations depend on besides their arguments.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/scoped.h"
#include "device/device.h"
#include "tandem/tensor.h"

namespace tandem {

struct AttrUpdate;      // graph/node.h
class CallOfOwnLayer;   // nn/own_layer.h
class CastCache;        // runtime/autocast.h
class Generator;        // runtime/generator.h
class GraphImpl;        // graph/graph.h
struct Leaf;            // op/record.h
struct Node;            // graph/node.h
struct OpNode;          // op/record.h
struct PlacementFrame;  // runtime/placement.h
class ReplicaContext;   // runtime/replica_context.h
class StepRunner;       // train/step_runner.h
struct TraceFrame;      // runtime/trace.h
class TracedGradients;  // op/record.h
class VariableCopies;   // runtime/variable_copies.h
class VariableCreator;  // runtime/variable_impl.h
namespace distribute {
class StrategyImpl;  // distribute/strategy_impl.h
}
namespace metrics {
struct NestedSums;  // nn/metrics.cc
}

struct AutocastSettings {
  DType dtype = bfloat16;                // of operations with AutocastRule::kLower
  DeviceType device = DeviceType::kCpu;  // whose rules apply
  bool caches = true;
};

// A new member needs a decision in for_worker() and in add_to_key() (function/context_key.h), which
// name every member.
struct Context {
  // Whether operations are recorded, and the number of live gradient tapes.
  bool records = true;
  int tapes = 0;
  // The gradients that the function which the thread traces gives to leaves; null outside traces.
  TracedGradients* traced_gradients = nullptr;

  // In a backward pass; null outside of it: the operation whose gradient is computed, what provides
  // the buffers of gradients (null if nothing does), and the actions after the pass.
  const OpNode* differentiated = nullptr;
  const std::function<Tensor(const Leaf& leaf)>* gradient_buffers = nullptr;
  std::vector<std::function<void(bool completed)>>* after_backward = nullptr;
  // The buffer that the next result which matches it is computed in; null: there is none.
  Tensor* open_buffer = nullptr;

  // The graph that operations are added to; null if they run eagerly.
  GraphImpl* graph = nullptr;
  // The function that is traced; null outside of traces and in the graph of a session.
  TraceFrame* trace = nullptr;
  // The update of the attributes of new nodes, and the nodes that they are colocated with; null if
  // there are none.
  const std::shared_ptr<const AttrUpdate>* attr_update = nullptr;
  const std::vector<Node*>* colocated_with = nullptr;

  // The request of the innermost device scope; null without one.
  const PlacementFrame* placement = nullptr;
  // Automatic mixed precision; none if it is off. The cache is that of the outermost scope; null
  // outside of scopes.
  std::optional<AutocastSettings> autocast{};
  CastCache* cast_cache = nullptr;
  // The dtype in which floating variables of layers are read (VariableImpl::of_layer); none: their
  // own.
  std::optional<DType> weight_dtype{};

  // The open strategy, or that of the replica, and its runner of steps; null outside of strategies.
  distribute::StrategyImpl* strategy = nullptr;
  const std::shared_ptr<StepRunner>* runner = nullptr;
  // The replica that the thread runs; null outside of replicas.
  ReplicaContext* replica = nullptr;
  // Chooses the devices of new variables; null outside of strategies.
  VariableCreator* creator = nullptr;
  // Copies that are read and assigned to in place of variables; null: there are none.
  VariableCopies* copies = nullptr;
  // Numbers random operations; null: the process's generator does.
  Generator* generator = nullptr;
  // Whether the thread runs the forward pass of a model whose ranks have losses that are means over
  // their own examples, and whose gradients are averaged with each rank weighted by its number of
  // examples. If not, the job's loss is the sum of the ranks' losses, or a multiple of it.
  bool weighted_by_examples = false;

  // The path of the innermost layer that is called, and whether it is called for training; null and
  // none outside of layers.
  const std::string* layer = nullptr;
  std::optional<bool> training{};
  // The call of a layers::Layer, which learns of the layers that it calls; null outside of such
  // calls, and inside of calls of their children.
  const CallOfOwnLayer* own_call = nullptr;
  // The sums of metrics inside of a metric of a user's class; null: metrics use their own.
  metrics::NestedSums* nested_sums = nullptr;

  // On a thread that runs a stream: set when the stream's consumer is destroyed, which ends long
  // loops and waits. Null on other threads.
  const std::atomic<bool>* cancelled = nullptr;
  // The worker whose random numbers new pipelines have.
  std::uint64_t worker = 0;

  // The element of the full tensors at which those of an element-wise kernel begin, for messages.
  std::int64_t first_element = 0;
};

extern constinit thread_local Context context;

// The context of a thread that works for one with the context `caller`, which waits for it.
Context for_worker(const Context& caller);

}  // namespace tandem
