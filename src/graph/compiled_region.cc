#include "graph/compiled_region.h"

#include <algorithm>
#include <map>
#include <unordered_set>

#include "core/status.h"
#include "graph/collective.h"
#include "graph/control_flow.h"
#include "graph/structural_ops.h"

namespace tandem {

const OpDef kCompiledRegion = {.name = "_CompiledRegion", .traits = kStateful};

bool runs_compiled(const Device& device) { return device.backend() == DeviceBackend::kPjrt; }

namespace {

using NodeMap = std::unordered_map<const Node*, const Node*>;

// --- comparing replicas ---

// Fields that differ between replicas without consequences for the program: each run passes the
// random keys as parameters, and collectives know their rank.
bool belongs_to_replica(const OpDef& op, std::string_view field) {
  if (op.exchange_key)
    return field == "seed" || field == "number" || field == "stream" || field == "offset";
  return field == "rank" || field == "first_example" || field == "examples" || field == "skipped";
}

class Comparison {
 public:
  // Compares the nodes of two replicas. `differing`: constants that differ.
  Comparison(const std::vector<const Node*>& a, const std::vector<const Node*>& b,
             std::vector<const Node*>& differing)
      : differing_(differing) {
    if (a.size() != b.size())
      difference_ = fmt::format("one has {} operations and the other {}", a.size(), b.size());
    for (std::size_t i = 0; i < a.size() && difference_.empty(); ++i) compare(*a[i], *b[i]);
  }

  // Empty if they are the same.
  const std::string& difference() const { return difference_; }
  NodeMap& counterparts() { return counterparts_; }

 private:
  void compare(const Node& a, const Node& b) {
    if (a.op != b.op || a.inputs.size() != b.inputs.size() || !a.attr_update != !b.attr_update ||
        !a.control != !b.control)
      return differ(a, b);
    for (std::size_t i = 0; i < a.outputs.size(); ++i)
      if (a.outputs[i].dtype != b.outputs[i].dtype || !(a.outputs[i].shape == b.outputs[i].shape))
        return differ(a, b);
    if (a.op == &kConst) {
      pair(a, b);
      if (a.literal != b.literal || !same_tensor(a.value, b.value)) differing_.push_back(&a);
      return;
    }
    if (!same_attrs(a, b)) return differ(a, b);
    for (std::size_t i = 0; i < a.inputs.size(); ++i)
      if (a.inputs[i].output != b.inputs[i].output || !pair(*a.inputs[i].node, *b.inputs[i].node))
        return differ(a, b);
    pair(a, b);
    if (a.control) compare_bodies(*a.control, *b.control);
  }

  void compare_bodies(const ControlFlow& a, const ControlFlow& b) {
    for (std::size_t i = 0; i < a.bodies.size() && difference_.empty(); ++i) {
      const auto &nodes_a = a.bodies[i].graph->nodes(), &nodes_b = b.bodies[i].graph->nodes();
      if (nodes_a.size() != nodes_b.size()) {
        difference_ = "a body of control flow has another number of operations";
        return;
      }
      for (std::size_t k = 0; k < nodes_a.size() && difference_.empty(); ++k)
        compare(*nodes_a[k], *nodes_b[k]);
    }
  }

  static bool same_tensor(const Tensor& a, const Tensor& b) {
    if (!a.defined() || !b.defined()) return a.defined() == b.defined();
    return &impl_of(a) == &impl_of(b);
  }

  static bool same_attrs(const Node& a, const Node& b) {
    if (!a.attrs || !b.attrs) return !a.attrs && !b.attrs;
    if (a.op->attrs().equal(a.attrs.get(), b.attrs.get())) return true;
    const AttrFields of_a = a.op->attrs().save(a.attrs.get()),
                     of_b = b.op->attrs().save(b.attrs.get());
    for (std::size_t i = 0; i < of_a.size(); ++i)
      if (!(of_a[i] == of_b[i]) && !belongs_to_replica(*a.op, of_a[i].name)) return false;
    return true;
  }

  // Notes that `b` corresponds to `a`. Returns false if `a` has another counterpart.
  bool pair(const Node& a, const Node& b) {
    return counterparts_.try_emplace(&a, &b).first->second == &b;
  }

  void differ(const Node& a, const Node& b) {
    difference_ = fmt::format("'{}' ({}) is '{}' ({}) on the other, or has other inputs or sizes",
                              a.name, a.op->name, b.name, b.op->name);
  }

  std::vector<const Node*>& differing_;
  NodeMap counterparts_;
  std::string difference_;
};

// --- finding regions ---

class RegionFinder {
 public:
  explicit RegionFinder(const NeededNodes& nodes) : nodes_(nodes) {}

  std::vector<RegionItem> run() {
    find_stages();
    std::vector<RegionItem> items;
    for (std::size_t stage = 0; stage < stages_.size(); ++stage) {
      for (const Node* node : stages_[stage].others) items.push_back({.node = node});
      add_regions(stages_[stage].by_device, items);
    }
    return items;
  }

 private:
  // The nodes that run operation by operation, and then those of regions.
  struct Stage {
    std::vector<const Node*> others;
    std::map<Device*, std::vector<const Node*>> by_device;
  };

  Device& device_of(const Node& node) const {
    return *nodes_.devices[static_cast<std::size_t>(node.id)];
  }
  bool is_compiled(const Node& node) const {
    return !is_source(*node.op) && runs_compiled(device_of(node));
  }
  bool is_fed(const Node::Input& tensor) const {
    return std::find(nodes_.feeds.begin(), nodes_.feeds.end(), tensor) != nodes_.feeds.end();
  }

  // The first stage in which a node can be: after all that it uses. A variable is used in program
  // order.
  void find_stages() {
    const std::unordered_set<const Node*> constants = constants_of_others();
    std::vector<std::size_t> stage_of(nodes_.graph.nodes().size(), 0);
    std::map<const Node*, std::size_t> last_use;  // by handle
    for (const auto& node : nodes_.graph.nodes()) {
      if (!is_needed(*node) || (node->op == &kConst && constants.count(node.get()) == 0)) continue;
      const bool compiled = is_compiled(*node);
      std::size_t stage = 0;
      const auto after = [&](const Node& other) {
        const bool same_region =
            compiled && is_compiled(other) && &device_of(*node) == &device_of(other);
        const bool waits = is_compiled(other) && !same_region;
        stage = std::max(stage, stage_of[static_cast<std::size_t>(other.id)] + (waits ? 1 : 0));
      };
      for (const Node::Input& input : node->inputs) {
        if (is_fed(input)) continue;
        after(*input.node);
        if (input.node->op == &kVarHandle) stage = std::max(stage, last_use[input.node]);
      }
      for (const Node* control : node->control_inputs) after(*control);
      for (const Node::Input& input : node->inputs)
        if (input.node->op == &kVarHandle) last_use[input.node] = stage;
      stage_of[static_cast<std::size_t>(node->id)] = stage;
      add_to_stage(stage, *node, compiled);
    }
  }

  bool is_needed(const Node& node) const {
    return nodes_.needed[static_cast<std::size_t>(node.id)];
  }

  // The constants that something outside of regions uses.
  std::unordered_set<const Node*> constants_of_others() const {
    std::unordered_set<const Node*> found;
    for (const Node::Input& fetch : nodes_.fetches) found.insert(fetch.node);
    for (const auto& node : nodes_.graph.nodes())
      if (is_needed(*node) && !is_compiled(*node))
        for (const Node::Input& input : node->inputs) found.insert(input.node);
    return found;
  }

  void add_to_stage(std::size_t stage, const Node& node, bool compiled) {
    if (stages_.size() <= stage) stages_.resize(stage + 1);
    if (!compiled) {
      stages_[stage].others.push_back(&node);
      return;
    }
    std::vector<const Node*>& nodes = stages_[stage].by_device[&device_of(node)];
    // A module has its own constants.
    for (const Node::Input& input : node.inputs)
      if (input.node->op == &kConst && !is_fed(input) &&
          std::find(nodes.begin(), nodes.end(), input.node) == nodes.end())
        nodes.push_back(input.node);
    nodes.push_back(&node);
  }

  static int rank_of(const std::vector<const Node*>& nodes) {
    for (const Node* node : nodes)
      if (node->member) return node->member->rank;
    return -1;
  }

  static std::size_t group_size(const std::vector<const Node*>& nodes) {
    for (const Node* node : nodes)
      if (node->member) return static_cast<std::size_t>(node->member->group->size());
    return 0;
  }

  void add_regions(const std::map<Device*, std::vector<const Node*>>& by_device,
                   std::vector<RegionItem>& items) const {
    if (by_device.empty()) return;
    std::vector<std::pair<Device*, const std::vector<const Node*>*>> replicas;
    std::size_t ranks = 0;
    for (const auto& [device, nodes] : by_device) {
      replicas.emplace_back(device, &nodes);
      ranks = std::max(ranks, group_size(nodes));
    }
    std::sort(replicas.begin(), replicas.end(), [](const auto& a, const auto& b) {
      return std::pair(rank_of(*a.second), a.first->index()) <
             std::pair(rank_of(*b.second), b.first->index());
    });
    auto all = std::make_shared<RegionNodes>();
    std::string difference;
    for (const auto& [device, nodes] : replicas) {
      Comparison comparison(*replicas[0].second, *nodes, all->differing);
      if (difference.empty()) difference = comparison.difference();
      all->devices.push_back(device);
      all->nodes.push_back(*nodes);
      all->counterparts.push_back(std::move(comparison.counterparts()));
    }
    if (ranks > 0 && difference.empty() && ranks != replicas.size())
      difference = fmt::format("only {} of {} replicas run it", replicas.size(), ranks);
    if (difference.empty()) {
      items.push_back({.node = nullptr, .region = std::move(all)});
      return;
    }
    if (ranks > 0)
      fail<UnimplementedError>(
          "[{}] the replicas of a compiled step must run the same operations on tensors of the "
          "same shapes: {}",
          replicas[0].first->full_name(), difference);
    for (const auto& [device, nodes] : replicas) {
      auto single = std::make_shared<RegionNodes>();
      Comparison comparison(*nodes, *nodes, single->differing);
      single->devices.push_back(device);
      single->nodes.push_back(*nodes);
      single->counterparts.push_back(std::move(comparison.counterparts()));
      items.push_back({.node = nullptr, .region = std::move(single)});
    }
  }

  const NeededNodes& nodes_;
  std::vector<Stage> stages_;
};

}  // namespace

std::vector<RegionItem> find_regions(const NeededNodes& nodes) { return RegionFinder(nodes).run(); }

}  // namespace tandem
