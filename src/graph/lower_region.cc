#include "graph/lower_region.h"

#include <algorithm>
#include <unordered_set>

#include "graph/stablehlo/lower_module.h"
#include "graph/structural_ops.h"

namespace tandem {
namespace {

class RegionLowering {
 public:
  RegionLowering(const NeededNodes& needed, const LowerOptions& options,
                 std::shared_ptr<const RegionNodes> region, const RegionValues& values)
      : needed_(needed), options_(options), region_(std::move(region)), values_(values) {}

  LoweredRegion run(KnownSizes& sizes) {
    lowered_.region = std::make_shared<CompiledRegion>();
    lowered_.region->nodes = region_;
    lowered_.region->replicas.resize(region_->devices.size());
    find_feeds();
    find_fetches();
    lower(sizes);
    for (std::size_t parameter = 0; parameter < module().parameters.size(); ++parameter)
      connect_input(parameter);
    for (std::size_t replica = 0; replica < region_->devices.size(); ++replica)
      connect_outputs(replica);
    return std::move(lowered_);
  }

 private:
  const stablehlo::Module& module() const { return lowered_.region->module; }
  const std::vector<const Node*>& first() const { return region_->nodes[0]; }

  // The tensors that the nodes of the first replica use and do not compute.
  void find_feeds() {
    const std::unordered_set<const Node*> inside(first().begin(), first().end());
    for (const Node* node : first())
      for (const Node::Input& input : node->inputs) {
        if (input.node->op == &kVarHandle || inside.count(input.node) > 0) continue;
        if (std::find(feeds_.begin(), feeds_.end(), input) != feeds_.end()) continue;
        feeds_.push_back(input);
        users_.push_back(node);
      }
  }

  // The tensors that are used outside, on any replica.
  void find_fetches() {
    std::unordered_set<const Node*> inside;
    for (const auto& nodes : region_->nodes) inside.insert(nodes.begin(), nodes.end());
    std::vector<Node::Input> used(options_.fetches.begin(), options_.fetches.end());
    for (const auto& node : needed_.graph().nodes())
      if (needed_.contains(*node) && inside.count(node.get()) == 0)
        used.insert(used.end(), node->inputs.begin(), node->inputs.end());
    const auto is_used = [&](const Node::Input& tensor) {
      return std::find(used.begin(), used.end(), tensor) != used.end();
    };
    for (std::size_t i = 0; i < first().size(); ++i) {
      if (first()[i]->op == &kConst) continue;
      for (int output = 0; output < static_cast<int>(first()[i]->outputs.size()); ++output)
        for (const auto& nodes : region_->nodes)
          if (is_used({const_cast<Node*>(nodes[i]), output})) {
            fetches_.push_back({const_cast<Node*>(first()[i]), output});
            break;
          }
    }
  }

  void lower(KnownSizes& sizes) {
    stablehlo::ModuleOptions options{
        .name = first().back()->name,
        .num_replicas = static_cast<int>(region_->devices.size()),
        .nodes = first(),
        .feeds = feeds_,
        .fetches = fetches_,
        .differing = region_->differing,
        .sizes = &sizes,
    };
    for (std::size_t i = 0; i < feeds_.size(); ++i)
      options.feed_specs.push_back(values_.on(feeds_[i], *region_->devices[0], *users_[i]).spec);
    lowered_.region->module = stablehlo::lower_module(needed_.graph(), options);
  }

  Node::Input counterpart(std::size_t replica, const Node::Input& tensor) const {
    return {const_cast<Node*>(&lowered_.region->node_of(replica, *tensor.node)), tensor.output};
  }

  void connect_input(std::size_t index) {
    const stablehlo::Parameter& parameter = module().parameters[index];
    using Kind = stablehlo::Parameter::Kind;
    const bool is_variable = parameter.kind == Kind::kVariable;
    const auto& written = module().written;
    const bool writes = std::find(written.begin(), written.end(), index) != written.end();
    for (std::size_t replica = 0; replica < region_->devices.size(); ++replica) {
      auto& made = lowered_.region->replicas[replica];
      made.input_of.push_back(lowered_.inputs.size());
      if (!is_variable && parameter.kind != Kind::kFeed) continue;  // not of the block
      const Node::Input tensor =
          counterpart(replica, is_variable ? Node::Input{const_cast<Node*>(parameter.node), 0}
                                           : feeds_[parameter.index]);
      const Node& user = is_variable ? *parameter.node : *users_[parameter.index];
      Value& value = values_.on(tensor, *region_->devices[replica], user);
      Value* const home = writes ? &values_.of(tensor) : &value;
      add_input(value, writes && home == &value);
      if (home == &value) continue;
      made.home_of[index] = lowered_.inputs.size();
      add_input(*home, true);
    }
  }

  void add_input(Value& value, bool writes) {
    lowered_.inputs.push_back(&value);
    lowered_.region->writes.push_back(writes);
  }

  void connect_outputs(std::size_t replica) {
    auto& made = lowered_.region->replicas[replica];
    for (std::size_t i = 0; i < fetches_.size(); ++i) {
      made.output_of.push_back(lowered_.outputs.size());
      lowered_.outputs.push_back(
          {counterpart(replica, fetches_[i]), module().fetches[i], region_->devices[replica]});
    }
    for (const std::size_t parameter : module().written)
      made.output_of.push_back(made.input_of[parameter]);
  }

  const NeededNodes& needed_;
  const LowerOptions& options_;
  std::shared_ptr<const RegionNodes> region_;
  const RegionValues& values_;
  std::vector<Node::Input> feeds_, fetches_;  // of the first replica
  std::vector<const Node*> users_;            // of the feeds
  LoweredRegion lowered_;
};

}  // namespace

LoweredRegion lower_region(const NeededNodes& needed, const LowerOptions& options,
                           std::shared_ptr<const RegionNodes> region, KnownSizes& sizes,
                           const RegionValues& values) {
  return RegionLowering(needed, options, std::move(region), values).run(sizes);
}

}  // namespace tandem
