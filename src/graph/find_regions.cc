#include "graph/find_regions.h"

#include <algorithm>
#include <map>
#include <unordered_set>

#include "core/status.h"
#include "graph/collective.h"
#include "graph/control_flow.h"
#include "graph/structural_ops.h"

namespace tandem {

namespace {

using NodeMap = std::unordered_map<const Node*, const Node*>;
using CounterMap = std::unordered_map<const void*, Resource*>;

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
    same_ = a.size() == b.size();
    for (std::size_t i = 0; i < a.size() && same_; ++i) same_ = compare(*a[i], *b[i]);
  }

  bool same() const { return same_; }
  NodeMap& counterparts() { return counterparts_; }
  CounterMap& counters() { return counters_; }

 private:
  bool compare(const Node& a, const Node& b) {
    if (a.op != b.op || a.inputs.size() != b.inputs.size() || !a.attr_update != !b.attr_update ||
        !a.control != !b.control)
      return false;
    if (a.attr_update && !pair(a.attr_update->counter.get(), b.attr_update->counter.get()))
      return false;
    for (std::size_t i = 0; i < a.outputs.size(); ++i)
      if (a.outputs[i].dtype != b.outputs[i].dtype || !(a.outputs[i].shape == b.outputs[i].shape))
        return false;
    if (a.op == &kConst) {
      pair(a, b);
      if (a.literal != b.literal || !same_tensor(a.value, b.value)) differing_.push_back(&a);
      return true;
    }
    if (!same_attrs(a, b)) return false;
    for (std::size_t i = 0; i < a.inputs.size(); ++i)
      if (a.inputs[i].output != b.inputs[i].output || !pair(*a.inputs[i].node, *b.inputs[i].node))
        return false;
    pair(a, b);
    return !a.control || same_bodies(*a.control, *b.control);
  }

  bool same_bodies(const ControlFlow& a, const ControlFlow& b) {
    if (a.maximum_iterations != b.maximum_iterations) return false;
    for (std::size_t i = 0; i < a.bodies.size(); ++i) {
      const GraphImpl &body_a = *a.bodies[i].graph, &body_b = *b.bodies[i].graph;
      const auto &nodes_a = body_a.nodes(), &nodes_b = body_b.nodes();
      if (nodes_a.size() != nodes_b.size()) return false;
      if (!std::ranges::equal(
              body_a.counters(), body_b.counters(),
              [this](const auto& x, const auto& y) { return pair(x.get(), y.get()); }))
        return false;
      for (std::size_t k = 0; k < nodes_a.size(); ++k)
        if (!compare(*nodes_a[k], *nodes_b[k])) return false;
    }
    return true;
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
  bool pair(const Resource* a, Resource* b) {
    if (!a || !b) return a == b;
    return counters_.try_emplace(a->identity(), b).first->second->identity() == b->identity();
  }

  std::vector<const Node*>& differing_;
  NodeMap counterparts_;
  CounterMap counters_;
  bool same_ = true;
};

// --- finding regions ---

class RegionFinder {
 public:
  RegionFinder(const NeededNodes& needed, const LowerOptions& options)
      : needed_(needed), options_(options) {}

  std::vector<RegionItem> run() {
    find_stages();
    if (!have_same_collectives()) {
      host_runs_collectives_ = true;
      find_collectives();
      find_stages();
    }
    std::vector<RegionItem> items;
    for (const Stage& stage : stages_) {
      for (const Node* node : stage.others)
        if (!is_host_collective(*node)) items.push_back({.node = node});
      for (const Node* node : stage.others)
        if (is_host_collective(*node) && node->member->rank == 0)
          items.push_back(
              {.node = nullptr, .region = nullptr, .collective = collective_of_.at(node)});
      add_regions(stage.by_device, items);
    }
    return items;
  }

 private:
  // The nodes that run operation by operation, and then those of regions.
  struct Stage {
    std::vector<const Node*> others;
    std::map<DeviceImpl*, std::vector<const Node*>> by_device;
  };

  DeviceImpl& device_of(const Node& node) const {
    return *options_.devices[static_cast<std::size_t>(node.id)];
  }
  bool on_compiled_device(const Node& node) const {
    return !is_source(*node.op) && runs_compiled(device_of(node));
  }
  bool is_host_collective(const Node& node) const {
    return host_runs_collectives_ && node.member && on_compiled_device(node);
  }
  bool is_compiled(const Node& node) const {
    return on_compiled_device(node) && !is_host_collective(node);
  }
  bool is_fed(const Node::Input& tensor) const {
    return std::find(options_.feeds.begin(), options_.feeds.end(), tensor) != options_.feeds.end();
  }

  // The k-th collective of each rank of a group, by the node of each rank.
  void find_collectives() {
    std::map<const CollectiveGroup*, std::map<int, std::vector<const Node*>>> ranks_of;
    for (const auto& node : needed_.graph().nodes())
      if (needed_.contains(*node) && is_host_collective(*node))
        ranks_of[node->member->group.get()][node->member->rank].push_back(node.get());
    for (const auto& [group, ranks] : ranks_of)
      for (std::size_t k = 0; k < ranks.at(0).size(); ++k) {
        std::vector<const Node*> together;
        for (const auto& [rank, nodes] : ranks)
          if (k < nodes.size()) together.push_back(nodes[k]);
        if (together.size() != static_cast<std::size_t>(group->size())) {
          check_kinds(*group, *together[0]);
          fail<UnimplementedError>(
              "[{}] '{}': the replicas of a compiled step have other numbers of collectives",
              together[0]->op->name, together[0]->name);
        }
        for (const Node* node : together) collective_of_[node] = together;
      }
  }

  // Throws if a rank of the group is on a device that runs operation by operation.
  void check_kinds(const CollectiveGroup& group, const Node& compiled) const {
    for (const auto& node : needed_.graph().nodes())
      if (node->member && node->member->group.get() == &group && !on_compiled_device(*node))
        fail<UnimplementedError>(
            "[{}] '{}': one replica is on {} and another on {}: expected all of them on devices "
            "that run compiled programs, as TPUs do, or none",
            compiled.op->name, compiled.name, device_of(compiled).full_name(),
            device_of(*node).full_name());
  }

  // The stages, until all ranks of a host collective are in the same one.
  void find_stages() {
    for (;;) {
      stages_.clear();
      const std::vector<std::size_t> stage_of = stages_of_nodes();
      bool together = true;
      for (const auto& [node, ranks] : collective_of_)
        for (const Node* other : ranks) {
          std::size_t& least = least_stage_[node];
          const std::size_t stage = stage_of[static_cast<std::size_t>(other->id)];
          together = together && stage_of[static_cast<std::size_t>(node->id)] >= stage;
          least = std::max(least, stage);
        }
      if (together) return;
    }
  }

  // The first stage in which a node can be: after all that it uses. A variable is used in program
  // order, and so is a counter, which bodies advance and attributes depend on.
  std::vector<std::size_t> stages_of_nodes() {
    const std::unordered_set<const Node*> constants = constants_of_others();
    std::vector<std::size_t> stage_of(needed_.graph().nodes().size(), 0);
    std::map<const Node*, std::map<const DeviceImpl*, const Node*>> last_use;  // by handle
    std::map<const void*, const Node*> last_advance;                           // by counter
    for (const auto& node : needed_.graph().nodes()) {
      if (!needed_.contains(*node) || (node->op == &kConst && constants.count(node.get()) == 0))
        continue;
      const bool compiled = is_compiled(*node);
      const auto least = least_stage_.find(node.get());
      std::size_t stage = least == least_stage_.end() ? 0 : least->second;
      const auto after = [&](const Node& other) {
        const bool same_region =
            compiled && is_compiled(other) && &device_of(*node) == &device_of(other);
        const bool waits = (is_compiled(other) && !same_region) || is_host_collective(other);
        stage = std::max(stage, stage_of[static_cast<std::size_t>(other.id)] + (waits ? 1 : 0));
      };
      for (const Node::Input& input : node->inputs) {
        if (is_fed(input)) continue;
        after(*input.node);
        if (input.node->op == &kVarHandle)
          for (const auto& [device, user] : last_use[input.node]) after(*user);
      }
      const auto after_advance = [&](const Resource* counter) {
        if (const auto last = counter ? last_advance.find(counter->identity()) : last_advance.end();
            last != last_advance.end())
          after(*last->second);
      };
      if (node->attr_update) after_advance(node->attr_update->counter.get());
      if (node->control)
        for (const Resource* counter : counters_of(*node->control)) {
          after_advance(counter);
          last_advance[counter->identity()] = node.get();
        }
      for (const Node* control : node->control_inputs) after(*control);
      // The numbers of random operations depend on how many there were before.
      if (node->random_before)
        if (const Node* before = owner_of(needed_.graph(), node->random_before.get()))
          after(*before);
      for (const Node::Input& input : node->inputs)
        if (input.node->op == &kVarHandle) last_use[input.node][&device_of(*node)] = node.get();
      stage_of[static_cast<std::size_t>(node->id)] = stage;
      add_to_stage(stage, *node, compiled);
    }
    return stage_of;
  }

  // The constants that something outside of regions uses.
  std::unordered_set<const Node*> constants_of_others() const {
    std::unordered_set<const Node*> found;
    for (const Node::Input& fetch : options_.fetches) found.insert(fetch.node);
    for (const auto& node : needed_.graph().nodes())
      if (needed_.contains(*node) && !is_compiled(*node))
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

  using Replicas = std::vector<std::pair<DeviceImpl*, const std::vector<const Node*>*>>;

  // In the order of their ranks, else of their devices.
  static Replicas replicas_of(const std::map<DeviceImpl*, std::vector<const Node*>>& by_device) {
    Replicas replicas;
    for (const auto& [device, nodes] : by_device) replicas.emplace_back(device, &nodes);
    std::sort(replicas.begin(), replicas.end(), [](const auto& a, const auto& b) {
      return std::pair(rank_of(*a.second), a.first->index()) <
             std::pair(rank_of(*b.second), b.first->index());
    });
    return replicas;
  }

  // The region of these replicas; null if they differ.
  static std::shared_ptr<RegionNodes> region_of(const Replicas& replicas) {
    auto region = std::make_shared<RegionNodes>();
    for (const auto& [device, nodes] : replicas) {
      Comparison comparison(*replicas[0].second, *nodes, region->differing);
      if (!comparison.same()) return nullptr;
      region->devices.push_back(device);
      region->nodes.push_back(*nodes);
      region->counterparts.push_back(std::move(comparison.counterparts()));
      region->counters.push_back(std::move(comparison.counters()));
    }
    return region;
  }

  // Whether the replicas are the same, with all ranks, wherever there are collectives.
  bool have_same_collectives() const {
    return std::ranges::all_of(stages_, [](const Stage& stage) {
      std::size_t ranks = 0;
      for (const auto& [device, nodes] : stage.by_device)
        ranks = std::max(ranks, group_size(nodes));
      return ranks == 0 ||
             (ranks == stage.by_device.size() && region_of(replicas_of(stage.by_device)));
    });
  }

  static void add_regions(const std::map<DeviceImpl*, std::vector<const Node*>>& by_device,
                          std::vector<RegionItem>& items) {
    if (by_device.empty()) return;
    const Replicas replicas = replicas_of(by_device);
    if (auto all = region_of(replicas)) {
      items.push_back({.node = nullptr, .region = std::move(all)});
      return;
    }
    for (const auto& replica : replicas)
      items.push_back({.node = nullptr, .region = region_of({replica})});
  }

  const NeededNodes& needed_;
  const LowerOptions& options_;
  bool host_runs_collectives_ = false;
  std::map<const Node*, std::vector<const Node*>> collective_of_;  // the nodes of all ranks
  std::map<const Node*, std::size_t> least_stage_;                 // of host collectives
  std::vector<Stage> stages_;
};

}  // namespace

std::vector<RegionItem> find_regions(const NeededNodes& needed, const LowerOptions& options) {
  return RegionFinder(needed, options).run();
}

}  // namespace tandem
