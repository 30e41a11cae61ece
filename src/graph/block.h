// A block: a graph made ready to run. Every shape is known, every operation has its device, views
// are gone, and what moves between devices is an operation. Passes rewrite blocks; programs are
// built from them.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "graph/control_flow.h"
#include "graph/node.h"
#include "graph/symbolic_shape.h"

namespace tandem {

struct Block;
struct Operation;
struct Control;

// A tensor of a block, on one device.
struct Value {
  enum class Kind {
    kComputed,  // written by an operation of the block
    kFeed,      // given at each run: `index` tells which
    kConstant,  // `constant`
    kVariable,  // the memory of `resource`
    kView,      // `base` from byte `offset` on
  };

  Kind kind = Kind::kComputed;
  TensorSpec spec;
  Device* device = nullptr;
  Operation* producer = nullptr;  // kComputed
  int index = 0;                  // kFeed: of the feed; kComputed: of the producer's output
  Tensor constant;
  RefPtr<Resource> resource;
  Value* base = nullptr;  // never itself a view
  std::int64_t offset = 0;

  // The value whose memory this one is in.
  Value& root() { return base ? *base : *this; }
  const Value& root() const { return base ? *base : *this; }
  std::size_t bytes() const {
    return static_cast<std::size_t>(spec.shape.num_elements()) * size_of(spec.dtype);
  }
};

struct Operation {
  const OpDef* op = nullptr;
  std::shared_ptr<const void> attrs;
  std::shared_ptr<const Renewal> renewal;
  std::shared_ptr<const CollectiveMember> member;
  std::shared_ptr<Control> control;  // runs other blocks
  Device* device = nullptr;
  std::vector<Value*> inputs;
  std::vector<Value*> outputs;
  std::shared_ptr<const RandomSequence> random_before;  // of the node
  // The operation of another device whose output this one copies.
  const Operation* behind = nullptr;
  std::string name;  // of the node that it comes from

  bool has(std::uint32_t traits) const { return (op->traits & traits) != 0; }
  bool mutates(std::size_t input) const;
  // The same operation with equal attributes.
  bool does_as(const Operation& other) const;
};

struct Block {
  std::vector<std::unique_ptr<Value>> values;
  std::vector<std::unique_ptr<Operation>> operations;  // in the order of the program
  std::vector<Value*> fetches;

  Value& add_value(const TensorSpec& spec, Device& device, Value::Kind kind);
};

// A body made ready: for each of its feeds, where in the frame it is (graph/control_flow.h).
struct BodyBlock {
  Block block;
  std::vector<std::size_t> feeds;
};

// What a loop or a branch leaves behind for the way back.
struct ControlRecord {
  std::vector<bool> keeps;                // which loop variables
  std::vector<std::vector<Tensor>> kept;  // at the start of each iteration; memory stays for later
  std::vector<RandomMark> marks;          // of each iteration
  std::size_t iterations = 0;
};

// What a frame holds (graph/control_flow.h), before a run.
struct FrameEntry {
  TensorSpec spec;
  Device* device = nullptr;
};
using Frame = std::vector<FrameEntry>;

// Control flow in a block. The inputs of the operation are those of the node; its outputs are
// followed, for a loop, by as many that hold what is carried while an iteration is computed.
struct Control {
  std::shared_ptr<const ControlFlow> flow;
  std::vector<BodyBlock> bodies;  // of a loop over elements: none, see body_for
  // The body for elements of certain sizes, on certain devices.
  std::function<BodyBlock(const Frame& elements)> body_for;
  std::vector<Device*> devices;           // that bodies may use
  std::shared_ptr<ControlRecord> record;  // null: nobody goes back
  std::uint64_t offset_before = 0;
};

// Copies elements from the device of its input to its own, or within one device.
extern const OpDef kCopy;

// What a block is made of.
struct LowerOptions {
  std::vector<Node::Input> feeds;
  std::vector<TensorSpec> feed_specs;  // of this run: fully defined
  std::vector<Device*> feed_devices;
  std::vector<Node::Input> fetches;
  std::vector<Device*> devices;  // of each node, by id
  // The same for a body of one of its nodes.
  std::function<std::vector<Device*>(const GraphImpl& body)> devices_of;
  // The memory of a variable that the graph knows only by its VarHandleOp.
  std::function<RefPtr<Resource>(const Node&)> resource_of;
  // Run what writes variables even where no fetch depends on it (functions do, sessions do not).
  bool all_updates = false;
  std::vector<const Node*> targets;  // run also these
  // Sizes that are known beforehand; lower() adds those that it finds out.
  KnownSizes* sizes = nullptr;
};

// The part of `graph` that the fetches depend on, with every size filled in. Throws
// InvalidArgumentError where the feeds do not suit each other, or one is missing: "You must feed a
// value for placeholder tensor 'x' with dtype float32 and shape (?, 2)".
Block lower(const GraphImpl& graph, const LowerOptions& options);

}  // namespace tandem
