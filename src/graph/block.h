// A block: a graph that has been lowered. Every shape is known, every operation has its device,
// view operations are gone, and copies between devices are operations. Passes rewrite blocks;
// programs are built from them.
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
struct BlockOperation;
struct CompiledRegion;  // graph/compiled_region.h
struct Control;
struct HostCollective;  // graph/host_collective.h

// A tensor of a block, on one device.
struct Value {
  enum class Kind {
    kComputed,  // written by an operation of the block
    kFeed,      // input number `index` of each run
    kConstant,  // `constant`
    kVariable,  // the memory of `resource`
    kView,      // `base` from byte `offset` on
  };

  Kind kind = Kind::kComputed;
  TensorType spec;
  DeviceImpl* device = nullptr;
  BlockOperation* producer = nullptr;  // kComputed
  int index = 0;                       // kFeed: the feed's; kComputed: the producer's output
  Shape symbolic;  // kComputed, kFeed: the shape in the graph if it has unknown sizes
  Tensor constant;
  std::shared_ptr<const Tensor> kept;  // `constant`, if programs share it (op/kept_copies.h)
  RefPtr<Resource> resource;
  Value* base = nullptr;  // never itself a view
  std::int64_t offset = 0;

  ~Value();

  // The value that owns the memory of this one.
  Value& root() { return base ? *base : *this; }
  const Value& root() const { return base ? *base : *this; }
  std::size_t bytes() const {
    return static_cast<std::size_t>(spec.shape.num_elements()) * size_of(spec.dtype);
  }
};

struct BlockOperation {
  const OpDef* op = nullptr;
  std::shared_ptr<const void> attrs;
  std::shared_ptr<const AttrUpdate> attr_update;
  std::shared_ptr<const CollectiveMember> member;
  std::shared_ptr<Control> control;        // runs other blocks
  std::shared_ptr<CompiledRegion> region;  // of several devices
  std::shared_ptr<const HostCollective> host_collective;
  DeviceImpl* device = nullptr;
  std::vector<Value*> inputs;
  std::vector<Value*> outputs;
  std::shared_ptr<const RandomSequence> random_before;  // as Node::random_before
  // The operation on another device whose output this one copies.
  const BlockOperation* copied_from = nullptr;
  std::string name;  // of the node that was lowered to it

  ~BlockOperation();
  bool has(std::uint32_t traits) const { return (op->traits & traits) != 0; }
  bool mutates(std::size_t input) const;
  // Whether it runs while no other operation does, and has inputs and outputs on several devices.
  bool runs_alone() const { return control || region || host_collective; }
  // The attributes for a program: a copy of its own if each run updates them.
  std::shared_ptr<const void> attrs_of_a_program() const;
  // The same operation with equal attributes.
  bool does_as(const BlockOperation& other) const;
};

struct Block {
  std::vector<std::unique_ptr<Value>> values;
  std::vector<std::unique_ptr<BlockOperation>> operations;  // in the order of the program
  std::vector<Value*> fetches;
  std::shared_ptr<const SizeTable> sizes;  // of Value::symbolic

  Value& add_value(const TensorType& spec, DeviceImpl& device, Value::Kind kind);
};

// Throws ResourceExhaustedError if the values have more bytes than can be addressed, so that the
// memory plan can add sizes.
void check_total_bytes(const Block& block);

// A lowered body, and the index in the frame (graph/control_flow.h) of each of its feeds.
struct BodyBlock {
  Block block;
  std::vector<std::size_t> feeds;
};

// The values that a loop or a branch keeps for its gradient.
struct ControlRecord {
  std::vector<bool> keeps;  // whether each loop variable is kept
  std::vector<std::vector<Tensor>>
      kept;  // at the start of each iteration; the memory is reused in the next run
  std::vector<RandomMark> marks;  // of each iteration
  std::size_t iterations = 0;
};

// The spec and the device of one tensor of a frame (graph/control_flow.h).
struct FrameEntry {
  TensorType spec;
  DeviceImpl* device = nullptr;
};
using Frame = std::vector<FrameEntry>;

// Control flow in a block. The inputs of the operation are those of the node. The outputs of a loop
// are followed by as many buffers, which hold the carried values while an iteration computes.
struct Control {
  std::shared_ptr<const ControlFlow> flow;
  std::vector<bool> writes;       // as ControlFlow::writes; passes may add inputs
  std::vector<BodyBlock> bodies;  // empty for a loop over elements, see body_for
  // Lowers the body for elements of these specs and devices.
  std::function<BodyBlock(const Frame& elements)> body_for;
  std::vector<DeviceImpl*> devices;       // those that the bodies use
  std::shared_ptr<ControlRecord> record;  // null if there is no gradient
  std::uint64_t offset_before = 0;
};

// Copies elements from the device of its input to its own device; these may be the same.
extern const OpDef kCopy;

// How a graph is lowered to a block.
struct LowerOptions {
  std::vector<Node::Input> feeds;
  std::vector<TensorType> feed_specs;  // fully defined
  std::vector<DeviceImpl*> feed_devices;
  std::vector<Node::Input> fetches;
  std::vector<DeviceImpl*> devices;  // of each node, indexed by id
  // The same for a body of one of its nodes.
  std::function<std::vector<DeviceImpl*>(const GraphImpl& body)> devices_of;
  // The memory of a variable that the graph knows only by its VarHandleOp.
  std::function<RefPtr<Resource>(const Node&)> resource_of;
  // Also run updates of variables that no fetch depends on (functions do, sessions do not).
  bool all_updates = false;
  std::vector<const Node*> targets;  // nodes to run as well
  // Sizes that are already known; lower() adds those that it infers.
  KnownSizes* sizes = nullptr;

  // The spec and the device of the next feed.
  void add_given(const Tensor& value) {
    feed_specs.push_back(impl_of(value));
    feed_devices.push_back(&impl_of(value).device());
  }
};

// Lowers the part of `graph` that the fetches depend on. Throws InvalidArgumentError if feeds have
// inconsistent shapes or one is missing: "You must feed a value for placeholder tensor 'x' with
// dtype float32 and shape (?, 2)".
Block lower(const GraphImpl& graph, const LowerOptions& options);

}  // namespace tandem
