#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "core/status.h"
#include "graph/block.h"
#include "graph/find_regions.h"
#include "graph/graph.h"
#include "graph/host_collective.h"
#include "graph/lower_region.h"
#include "graph/needed_nodes.h"
#include "graph/structural_ops.h"

namespace tandem {

namespace {

LowerOptions options_of(const Body& body, const LowerOptions& around) {
  LowerOptions options{.fetches = body.fetches,
                       .devices = around.devices_of(*body.graph),
                       .devices_of = around.devices_of,
                       .all_updates = body.updates};
  options.resource_of = [outside = around.resource_of](const Node& handle) {
    return handle.outside->resource ? handle.outside->resource : outside(*handle.outside);
  };
  for (const Body::FrameFeed& feed : body.feeds) options.feeds.push_back(feed.tensor);
  return options;
}

void add_devices(const ControlFlow& flow, const LowerOptions& options,
                 std::vector<DeviceImpl*>& devices) {
  for (const Body& body : flow.bodies) {
    for (DeviceImpl* device : options.devices_of(*body.graph)) devices.push_back(device);
    for (const auto& node : body.graph->nodes())
      if (node->control) add_devices(*node->control, options, devices);
  }
}

// Lowers the bodies of one node (graph/control_flow.h), whose operations are placed once. Copyable,
// and valid as long as the node's graph. Loops over elements lower their body again for elements of
// other sizes or on other devices.
class BodyLowering {
 public:
  // `around`: the options for the graph of the node.
  BodyLowering(std::shared_ptr<const ControlFlow> flow, const LowerOptions& around)
      : flow_(std::move(flow)) {
    for (const Body& body : flow_->bodies) options_.push_back(options_of(body, around));
  }

  // `sizes`: the known sizes of the node's graph. Throws what lower() throws.
  BodyBlock lower(std::size_t body, const KnownSizes& sizes, const Frame& frame) const {
    LowerOptions options = options_[body];
    KnownSizes known = sizes;
    options.sizes = &known;
    BodyBlock made;
    for (const Body::FrameFeed& feed : flow_->bodies[body].feeds) {
      options.feed_specs.push_back(frame[feed.from].spec);
      options.feed_devices.push_back(frame[feed.from].device);
      made.feeds.push_back(feed.from);
    }
    made.block = tandem::lower(*flow_->bodies[body].graph, options);
    return made;
  }

  // The devices that the bodies and their nested bodies use.
  std::vector<DeviceImpl*> devices() const {
    std::vector<DeviceImpl*> devices;
    add_devices(*flow_, options_.front(), devices);
    return devices;
  }

 private:
  std::shared_ptr<const ControlFlow> flow_;
  std::vector<LowerOptions> options_;  // of each body, without those that differ between runs
};

class Lowering {
 public:
  Lowering(const GraphImpl& graph, const LowerOptions& options)
      : graph_(graph),
        options_(options),
        sizes_(options.sizes ? *options.sizes : KnownSizes()),
        needed_(graph, options),
        values_(graph.nodes().size()) {
    sizes_.use(graph.sizes());
    block_.sizes = graph.sizes();
  }

  Block run() {
    bind_feeds();
    try {
      lower_nodes();
    } catch (const ShapeError&) {
      check_left_out();
      throw;
    }
    for (const Node::Input& fetch : options_.fetches) block_.fetches.push_back(fetched(fetch));
    if (options_.sizes) *options_.sizes = sizes_;
    check_total_bytes(block_);
    return std::move(block_);
  }

 private:
  bool is_fed(const Node::Input& tensor) const {
    return std::find(options_.feeds.begin(), options_.feeds.end(), tensor) != options_.feeds.end();
  }

  void bind_feeds() {
    for (std::size_t i = 0; i < options_.feeds.size(); ++i) {
      const Node::Input& feed = options_.feeds[i];
      const TensorType& given = options_.feed_specs[i];
      const TensorType& expected = feed.node->outputs[static_cast<std::size_t>(feed.output)];
      const std::string name = fmt::format("{}:{}", feed.node->name, feed.output);
      if (given.dtype != expected.dtype)
        fail<InvalidArgumentError>(
            "[Session] cannot feed a value of dtype {} for tensor '{}' of dtype {}",
            name_of(given.dtype), name, name_of(expected.dtype));
      if (!expected.shape.matches(given.shape))
        fail<InvalidArgumentError>(
            "[Session] cannot feed value of shape {} for tensor '{}', which has shape {}",
            given.shape.to_string(), name, expected.shape.to_string());
      sizes_.bind(expected.shape, given.shape, name);
      Value& value = block_.add_value(given, *options_.feed_devices[i], Value::Kind::kFeed);
      value.index = static_cast<int>(i);
      if (!expected.shape.fully_defined()) value.symbolic = expected.shape;
      fed_.push_back(&value);
    }
  }

  Value& value_of(const Node::Input& tensor) {
    const auto at = std::find(options_.feeds.begin(), options_.feeds.end(), tensor);
    if (at != options_.feeds.end())
      return *fed_[static_cast<std::size_t>(at - options_.feeds.begin())];
    return *values_[static_cast<std::size_t>(tensor.node->id)].at(
        static_cast<std::size_t>(tensor.output));
  }

  // Throws the error of an operation that is left out of the program, if sizes of its result cannot
  // be computed because its inputs do not fit.
  void check_left_out() const {
    for (const auto& node : graph_.nodes()) {
      if (needed_.contains(*node) || node->control || !node->op->infer) continue;
      std::shared_ptr<const void> attrs;
      std::vector<TensorType> specs;
      try {
        attrs = sizes_.fill_in(*node->op, node->attrs);
        for (const Node::Input& input : node->inputs) {
          const TensorType& spec = input.node->outputs[static_cast<std::size_t>(input.output)];
          specs.push_back({spec.dtype, sizes_(spec.shape)});
        }
      } catch (const InvalidArgumentError&) {  // not known in this run
        continue;
      }
      InferContext infer(*node->op, AttrsRef(&node->op->attrs(), attrs.get()));
      for (const TensorType& spec : specs) infer.inputs.push_back(&spec);
      node->op->infer(infer);
    }
  }

  void lower_nodes() {
    const bool compiled =
        std::any_of(options_.devices.begin(), options_.devices.end(),
                    [](const DeviceImpl* device) { return runs_compiled(*device); });
    if (!compiled) {
      for (const auto& node : graph_.nodes())
        if (needed_.contains(*node)) lower_node(*node);
      return;
    }
    left_.emplace();
    const std::vector<RegionItem> items = find_regions(needed_, options_);
    const auto for_nodes = [](const RegionItem& item, const auto& call) {
      if (item.node) call(*item.node);
      for (const Node* node : item.collective) call(*node);
      if (item.region)
        for (const auto& nodes : item.region->nodes)
          for (const Node* node : nodes) call(*node);
    };
    for (const RegionItem& item : items)
      for_nodes(item, [&](const Node& node) { left_->insert(&node); });
    for (const RegionItem& item : items) {
      if (item.node) lower_node(*item.node);
      if (item.region) add_region(item.region);
      if (!item.collective.empty()) add_host_collective(item.collective);
      for_nodes(item, [&](const Node& node) { left_->erase(&node); });
    }
  }

  // `ranks`: the node of each rank.
  void add_host_collective(const std::vector<const Node*>& ranks) {
    BlockOperation& operation = *block_.operations.emplace_back(std::make_unique<BlockOperation>());
    operation.op = &kHostCollective;
    operation.device = options_.devices[static_cast<std::size_t>(ranks[0]->id)];
    operation.name = ranks[0]->name;
    auto collective = std::make_shared<HostCollective>();
    collective->op = ranks[0]->op;
    collective->attrs = sizes_.fill_in(*ranks[0]->op, ranks[0]->attrs);
    collective->num_ranks = ranks.size();
    operation.host_collective = std::move(collective);
    for (const Node* node : ranks) {
      DeviceImpl& device = *options_.devices[static_cast<std::size_t>(node->id)];
      for (const Node::Input& input : node->inputs)
        operation.inputs.push_back(&on_device(value_of(input), device, *node));
      for (const TensorType& output : node->outputs)
        values_[static_cast<std::size_t>(node->id)].push_back(
            &computed(operation, {output.dtype, sizes_(output.shape)}, device));
    }
  }

  void add_region(const std::shared_ptr<const RegionNodes>& region) {
    const RegionValues values{
        .of = [this](const Node::Input& tensor) -> Value& { return value_of(tensor); },
        .on = [this](const Node::Input& tensor, DeviceImpl& device, const Node& user) -> Value& {
          return on_device(value_of(tensor), device, user);
        }};
    LoweredRegion lowered = lower_region(needed_, options_, region, sizes_, values);
    for (std::size_t i = 0; i < lowered.inputs.size(); ++i)
      if (lowered.region->writes[i]) keep_reads_of(*lowered.inputs[i], *region->nodes[0].back());
    BlockOperation& operation = *block_.operations.emplace_back(std::make_unique<BlockOperation>());
    operation.op = &kCompiledRegion;
    operation.device = region->devices[0];
    operation.name = lowered.region->module.name;
    operation.region = std::move(lowered.region);
    operation.inputs = std::move(lowered.inputs);
    for (const LoweredRegion::Output& output : lowered.outputs) {
      auto& made = values_[static_cast<std::size_t>(output.tensor.node->id)];
      made.resize(output.tensor.node->outputs.size());
      made[static_cast<std::size_t>(output.tensor.output)] =
          &computed(operation, output.spec, *output.device);
    }
  }

  void lower_node(const Node& node) {
    DeviceImpl& device = *options_.devices[static_cast<std::size_t>(node.id)];
    auto& made = values_[static_cast<std::size_t>(node.id)];
    if (node.op == &kPlaceholder) {
      if (is_fed({const_cast<Node*>(&node), 0})) return;
      fail<InvalidArgumentError>(
          "You must feed a value for placeholder tensor '{}' with dtype {} and shape {}", node.name,
          name_of(node.outputs[0].dtype), node.outputs[0].shape.to_string());
    }
    if (node.op == &kConst) {
      made.push_back(&constant(node, device));
      return;
    }
    if (node.op == &kNoOp) return;
    if (node.op == &kVarHandle) {
      RefPtr<Resource> resource = node.resource ? node.resource : options_.resource_of(node);
      Value& value = block_.add_value(node.outputs[0], resource->device(), Value::Kind::kVariable);
      value.resource = std::move(resource);
      made.push_back(&value);
      return;
    }
    if (node.control)
      lower_control(node, device, made);
    else
      lower_operation(node, device, made);
  }

  Value& constant(const Node& node, DeviceImpl& device) {
    Value& value = block_.add_value(node.outputs[0], device, Value::Kind::kConstant);
    value.constant = node.graph->elements_of(node, device);
    return value;
  }

  void lower_operation(const Node& node, DeviceImpl& device, std::vector<Value*>& made) {
    const std::shared_ptr<const void> attrs = sizes_.fill_in(*node.op, node.attrs);
    const AttrsRef attrs_ref(&node.op->attrs(), attrs.get());
    InferContext infer(*node.op, attrs_ref);
    std::vector<Value*> inputs;
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      inputs.push_back(&on_device(value_of(node.inputs[i]), device, node));
      infer.inputs.push_back(&inputs.back()->spec);
    }
    node.op->infer(infer);
    for (std::size_t i = 0; i < node.outputs.size(); ++i)
      sizes_.bind(node.outputs[i].shape, infer.outputs[static_cast<int>(i)].shape, node.name);

    const bool changes_nothing =
        (node.op->traits & kIdentityIfSame) != 0 && inputs[0]->spec.shape == infer.outputs[0].shape;
    if (changes_nothing || (node.op->traits & kView) != 0) {
      const std::int64_t offset = node.op->view_offset ? node.op->view_offset(infer) : 0;
      made.push_back(&view(*inputs[0], infer.outputs[0], offset));
      note_read(node);
      return;
    }
    for (std::size_t i = 0; i < inputs.size(); ++i)
      if (node.mutates(i)) keep_reads_of(*inputs[i], node);
    BlockOperation& operation = *block_.operations.emplace_back(std::make_unique<BlockOperation>());
    operation.op = node.op;
    operation.attrs = attrs;
    operation.attr_update = node.attr_update;
    operation.member = node.member;
    operation.random_before = node.random_before;
    operation.device = &device;
    operation.name = node.name;
    operation.inputs = std::move(inputs);
    for (const TensorType& spec : infer.outputs) {
      const Shape& shape = node.outputs[operation.outputs.size()].shape;
      made.push_back(&computed(operation, spec));
      if (!shape.fully_defined()) made.back()->symbolic = shape;
    }
  }

  // --- control flow ---

  Frame frame_of(const ControlFlow& flow, const std::vector<Value*>& inputs) const {
    Frame frame(flow.elements);
    if (flow.kind == ControlFlow::Kind::kWhileGradient)
      for (std::size_t i = 0; i < flow.elements; ++i) {
        const Value& carried = *operation_of_.at(flow.forward)->outputs[i];
        frame[i] = {carried.spec, carried.device};
      }
    for (const Value* input : inputs) frame.push_back({input->spec, input->device});
    return frame;
  }

  // Carried values are on the devices where the body computes them, from the first iteration on.
  bool move_carried(const ControlFlow& flow, const Block& body, const Node& node,
                    std::vector<Value*>& inputs) {
    bool moved = false;
    for (std::size_t i = 0; i < flow.carried; ++i) {
      DeviceImpl& there = *body.fetches[i]->device;
      if (inputs[i]->device == &there) continue;
      inputs[i] = &on_device(*inputs[i], there, node);
      moved = true;
    }
    return moved;
  }

  void check_same(const Node& node, std::size_t output, const TensorType& expected,
                  const TensorType& got) const {
    if (expected.shape == got.shape) return;
    if (node.control->loops())
      fail<InvalidArgumentError>(
          "[{}] loop variable {} enters the loop with shape {}, but has shape {} after one "
          "iteration",
          node.op->name, output, expected.shape.to_string(), got.shape.to_string());
    fail<InvalidArgumentError>(
        "[{}] the branches give output {} different shapes, {} and {}: one program computes one "
        "shape",
        node.op->name, output, expected.shape.to_string(), got.shape.to_string());
  }

  void lower_control(const Node& node, DeviceImpl& device, std::vector<Value*>& made) {
    const ControlFlow& flow = *node.control;
    auto control = std::make_shared<Control>();
    control->flow = node.control;
    control->writes = flow.writes;
    control->offset_before = flow.offset_before;
    for (std::size_t i = 0; i < node.inputs.size(); ++i)
      if (node.mutates(i)) keep_reads_of(value_of(node.inputs[i]), node);
    std::vector<Value*> inputs;
    for (const Node::Input& input : node.inputs) inputs.push_back(&value_of(input));

    const BodyLowering bodies(node.control, options_);
    const std::size_t last =
        flow.bodies.size() - 1;  // of a loop: the body that returns the carried values
    std::vector<FrameEntry> outputs;
    if (flow.source) {
      control->devices = bodies.devices();
      control->body_for = [bodies, last, sizes = sizes_,
                           frame = frame_of(flow, inputs)](const Frame& elements) mutable {
        std::copy(elements.begin(), elements.end(), frame.begin());
        return bodies.lower(last, sizes, frame);
      };
    } else {
      Frame frame = frame_of(flow, inputs);
      BodyBlock body = bodies.lower(last, sizes_, frame);
      if (flow.loops() && move_carried(flow, body.block, node, inputs)) {
        frame = frame_of(flow, inputs);
        body = bodies.lower(last, sizes_, frame);
      }
      if (last > 0) control->bodies.push_back(bodies.lower(0, sizes_, frame));
      control->bodies.push_back(std::move(body));
      const Block& results =
          flow.loops() ? control->bodies.back().block : control->bodies.front().block;
      for (std::size_t i = 0; i < results.fetches.size(); ++i) {
        const Value& fetch = *results.fetches[i];
        outputs.push_back({fetch.spec, flow.loops() ? inputs[i]->device : fetch.device});
        check_same(node, i, flow.loops() ? inputs[i]->spec : fetch.spec,
                   control->bodies.back().block.fetches[i]->spec);
      }
    }
    for (std::size_t i = 0; i < outputs.size(); ++i)
      sizes_.bind(node.outputs[i].shape, outputs[i].spec.shape, node.name);
    if (flow.needs_record()) share_record(flow, *control);

    add_control(node, device, {std::move(control), std::move(inputs), outputs}, made);
  }

  struct LoweredControl {
    std::shared_ptr<Control> control;
    std::vector<Value*> inputs;
    std::vector<FrameEntry> outputs;
  };
  void add_control(const Node& node, DeviceImpl& device, LoweredControl lowered,
                   std::vector<Value*>& made) {
    const ControlFlow& flow = *node.control;
    BlockOperation& operation = *block_.operations.emplace_back(std::make_unique<BlockOperation>());
    operation.op = node.op;
    operation.control = std::move(lowered.control);
    operation.random_before = node.random_before;
    operation.device = &device;
    operation.name = node.name;
    operation.inputs = std::move(lowered.inputs);
    for (const FrameEntry& output : lowered.outputs)
      made.push_back(&computed(operation, output.spec, *output.device));
    if (flow.loops())
      for (const FrameEntry& output : lowered.outputs)
        computed(operation, output.spec, *output.device);
    operation_of_[&node] = &operation;
  }

  // The gradient reads the record that the forward operation keeps.
  void share_record(const ControlFlow& flow, Control& gradient) {
    Control& forward = *operation_of_.at(flow.forward)->control;
    if (!forward.record) forward.record = std::make_shared<ControlRecord>();
    gradient.record = forward.record;
    forward.record->keeps.resize(forward.flow->carried, false);
    for (const BodyBlock& body : gradient.bodies) {
      const auto note = [&](const Value& value) {
        if (value.root().kind != Value::Kind::kFeed) return;
        const std::size_t from = body.feeds[static_cast<std::size_t>(value.root().index)];
        if (from < flow.elements) forward.record->keeps[from] = true;
      };
      for (const auto& operation : body.block.operations)
        for (const Value* input : operation->inputs) note(*input);
      for (const Value* fetch : body.block.fetches) note(*fetch);
    }
  }

  // A tensor that was read from a variable keeps its elements. So it is copied before a write to
  // the variable if it is used later.
  void note_read(const Node& node) {
    Value& value = *values_[static_cast<std::size_t>(node.id)][0];
    if (value.root().kind == Value::Kind::kVariable)
      reads_[&value.root()].push_back({const_cast<Node*>(&node), 0});
  }
  void keep_reads_of(Value& memory, const Node& writer) {
    for (const Node::Input& read : std::exchange(reads_[&memory.root()], {})) {
      const int last = last_use(read, writer);
      if (last < writer.id) continue;
      if (last == writer.id && !reads_what_it_writes(writer, read, memory)) continue;
      Value*& value = values_[static_cast<std::size_t>(read.node->id)][0];
      value = &copy(*value, *value->device, read.node->name + "/kept");
    }
  }

  // As NeededNodes::last_use(), by the nodes that are left when `writer` is lowered.
  int last_use(const Node::Input& tensor, const Node& writer) const {
    const int last = needed_.last_use(tensor);
    if (!left_ || last == NeededNodes::kFetched) return last;
    const auto uses = [&](const Node* node) {
      return std::find(node->inputs.begin(), node->inputs.end(), tensor) != node->inputs.end();
    };
    const auto other_uses = [&](const Node* node) { return node != &writer && uses(node); };
    if (std::any_of(left_->begin(), left_->end(), other_uses)) return NeededNodes::kFetched;
    return uses(&writer) ? writer.id : -1;
  }

  // Whether a body that writes the variable also gets `read` and may use it after the write.
  bool reads_what_it_writes(const Node& writer, const Node::Input& read, const Value& memory) {
    if (!writer.control) return false;
    for (const Body& body : writer.control->bodies) {
      const auto is_memory = [&](std::size_t input) {
        return &value_of(writer.inputs[input]).root() == &memory.root();
      };
      const auto is_read = [&](const Body::FrameFeed& feed) {
        return feed.from >= writer.control->elements &&
               writer.inputs[feed.from - writer.control->elements] == read;
      };
      // In a loop, another body or a later iteration may read it.
      if ((writer.control->loops() ||
           std::any_of(body.written.begin(), body.written.end(), is_memory)) &&
          std::any_of(body.feeds.begin(), body.feeds.end(), is_read))
        return true;
    }
    return false;
  }

  Value& computed(BlockOperation& operation, const TensorType& spec) {
    return computed(operation, spec, *operation.device);
  }
  Value& computed(BlockOperation& operation, const TensorType& spec, DeviceImpl& device) {
    Value& value = block_.add_value(spec, device, Value::Kind::kComputed);
    value.producer = &operation;
    value.index = static_cast<int>(operation.outputs.size());
    operation.outputs.push_back(&value);
    return value;
  }

  Value& view(Value& of, const TensorType& spec, std::int64_t offset) {
    Value& value = block_.add_value(spec, *of.device, Value::Kind::kView);
    value.base = &of.root();
    value.offset = of.offset + offset;
    return value;
  }

  Value& copy(Value& from, DeviceImpl& device, const std::string& name) {
    BlockOperation& operation = *block_.operations.emplace_back(std::make_unique<BlockOperation>());
    operation.op = &kCopy;
    operation.device = &device;
    operation.name = name;
    if (from.device != &device) operation.copied_from = from.root().producer;
    operation.inputs.push_back(&from);
    return computed(operation, from.spec);
  }

  // The value on `device`, for `node`.
  Value& on_device(Value& value, DeviceImpl& device, const Node& node) {
    if (value.device == &device) return value;
    // The elements of now, because control flow may write them before the next use.
    if (value.kind == Value::Kind::kVariable)
      return copy(copy(value, *value.device, node.name + "/read"), device, node.name + "/recv");
    Value*& moved = moved_[{&value, &device}];
    if (!moved) {
      Value& source = value.root().kind == Value::Kind::kVariable ? snapshot(value, node) : value;
      moved = &copy(source, device, node.name + "/recv");
    }
    return *moved;
  }

  // The memory of a variable may be written while other devices copy from it.
  Value& snapshot(Value& value, const Node& node) {
    Value*& taken = moved_[{&value, value.device}];
    if (!taken) taken = &copy(value, *value.device, node.name + "/read");
    return *taken;
  }

  // A fetch must not share the memory of a variable, which may change.
  Value* fetched(const Node::Input& fetch) {
    Value& value = value_of(fetch);
    return value.root().kind == Value::Kind::kVariable
               ? &copy(value, *value.device, fetch.node->name + "/fetched")
               : &value;
  }

  const GraphImpl& graph_;
  const LowerOptions& options_;
  KnownSizes sizes_;
  NeededNodes needed_;
  std::vector<std::vector<Value*>> values_;  // of each node
  std::vector<Value*> fed_;
  std::map<std::pair<Value*, DeviceImpl*>, Value*> moved_;
  std::unordered_map<const Value*, std::vector<Node::Input>> reads_;  // of each variable
  std::unordered_map<const Node*, BlockOperation*> operation_of_;     // of control flow nodes
  // The nodes that find_regions() has ordered and that are not lowered yet. None if all are lowered
  // in their own order.
  std::optional<std::unordered_set<const Node*>> left_;
  Block block_;
};

}  // namespace

Block lower(const GraphImpl& graph, const LowerOptions& options) {
  return Lowering(graph, options).run();
}

}  // namespace tandem
