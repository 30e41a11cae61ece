#include "graph/stablehlo/lower_module.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "core/status.h"
#include "graph/check_numerics.h"
#include "graph/control_flow.h"
#include "graph/stablehlo/run_numbers.h"
#include "graph/structural_ops.h"

namespace tandem::stablehlo {
namespace {

// A constant with more bytes becomes a parameter, so that the module stays small.
constexpr std::size_t kMostLiteralBytes = 4096;

// Equal for all handles of a variable, also those of bodies.
const void* key_of(const Node& handle) {
  return handle.resource ? handle.resource->identity()
                         : static_cast<const void*>(&outermost(handle));
}

class GraphLowering {
 public:
  GraphLowering(const GraphImpl& graph, const ModuleOptions& options)
      : options_(options),
        sizes_(options.sizes ? *options.sizes : KnownSizes()),
        numbers_(module_) {
    sizes_.set_count(graph.sizes().count());
    module_.name = options.name;
    module_.num_replicas = options.num_replicas;
  }

  Module run() {
    for (std::size_t i = 0; i < options_.feeds.size(); ++i) bind_feed(i);
    for (const Node* node : options_.nodes) lower_node(*node);
    std::vector<Value> results;
    for (const Node::Input& fetch : options_.fetches) {
      results.push_back(value_of(fetch));
      const DType dtype = fetch.node->outputs[static_cast<std::size_t>(fetch.output)].dtype;
      module_.fetches.push_back({dtype, results.back().shape()});
    }
    for (const Node* handle : written_) {
      module_.written.push_back(parameter_of_.at(key_of(*handle)));
      results.push_back(variables_.at(key_of(*handle)));
    }
    write_body(results);
    if (options_.sizes) *options_.sizes = sizes_;
    return std::move(module_);
  }

 private:
  // --- parameters ---

  Value add_parameter(Parameter parameter) {
    Value value{fmt::format("%arg{}", module_.parameters.size()), parameter.spec};
    module_.parameters.push_back(std::move(parameter));
    return value;
  }

  void bind_feed(std::size_t index) {
    const Node::Input& feed = options_.feeds[index];
    const TensorSpec& given = options_.feed_specs[index];
    const TensorSpec& expected = feed.node->outputs[static_cast<std::size_t>(feed.output)];
    if (given.dtype != expected.dtype || !expected.shape.matches(given.shape))
      fail<InvalidArgumentError>("[{}] expected shape {} and dtype {} for '{}', got {} and {}",
                                 options_.name, expected.shape.to_string(), name_of(expected.dtype),
                                 feed.node->name, given.shape.to_string(), name_of(given.dtype));
    sizes_.bind(expected.shape, given.shape, feed.node->name);
    values_.insert_or_assign(
        {feed.node, feed.output},
        add_parameter({.kind = Parameter::Kind::kFeed, .spec = given, .index = index}));
  }

  // The current elements of a variable.
  Value& variable(const Node& handle) {
    const void* key = key_of(handle);
    const auto found = variables_.find(key);
    if (found != variables_.end()) return found->second;
    parameter_of_[key] = module_.parameters.size();
    const Node& outside = handle.resource ? handle : outermost(handle);
    Value elements = add_parameter(
        {.kind = Parameter::Kind::kVariable, .spec = handle.outputs[0], .node = &outside});
    return variables_.emplace(key, std::move(elements)).first->second;
  }

  void write_variable(const Node& handle, Value value) {
    variable(handle) = std::move(value);
    const auto same = [&](const Node* other) { return key_of(*other) == key_of(handle); };
    if (std::none_of(written_.begin(), written_.end(), same)) written_.push_back(&handle);
  }

  Value constant(const Node& node) {
    const TensorSpec& spec = node.outputs[0];
    const bool differs = std::find(options_.differing.begin(), options_.differing.end(), &node) !=
                         options_.differing.end();
    if (!differs && !node.value.defined() && node.literal.size() <= kMostLiteralBytes)
      return build_.literal(spec, node.literal.data());
    return add_parameter({.kind = Parameter::Kind::kConstant, .spec = spec, .node = &node});
  }

  // --- nodes ---

  const Value& value_of(const Node::Input& tensor) const {
    const auto found = values_.find({tensor.node, tensor.output});
    if (found == values_.end())
      fail<InvalidArgumentError>(
          "You must feed a value for placeholder tensor '{}' with dtype {} and shape {}",
          tensor.node->name, name_of(tensor.node->outputs[0].dtype),
          tensor.node->outputs[0].shape.to_string());
    return found->second;
  }

  void lower_node(const Node& node) {
    if (node.op == &kPlaceholder || node.op == &kVarHandle || node.op == &kNoOp) return;
    if (node.op == &kConst)
      values_.insert_or_assign({&node, 0}, constant(node));
    else if (node.op == &kReadVariable)
      values_.insert_or_assign({&node, 0}, variable(*node.inputs[0].node));
    else if (node.op == &kAssignVariable)
      write_variable(*node.inputs[0].node, value_of(node.inputs[1]));
    else if (node.control)
      lower_control(node);
    else
      lower_operation(node);
  }

  void lower_operation(const Node& node) {
    const std::shared_ptr<const void> attrs = sizes_.fill_in(*node.op, node.attrs);
    InferContext infer(*node.op, AttrsRef(&node.op->attrs(), attrs.get()));
    std::vector<Value> inputs;
    std::vector<TensorSpec> specs;
    for (const Node::Input& input : node.inputs) {
      const bool is_memory = input.node->op == &kVarHandle;
      inputs.push_back(is_memory ? variable(*input.node) : value_of(input));
      specs.push_back({input.node->outputs[static_cast<std::size_t>(input.output)].dtype,
                       inputs.back().shape()});
    }
    for (const TensorSpec& spec : specs) infer.inputs.push_back(&spec);
    node.op->infer(infer);
    for (std::size_t i = 0; i < node.outputs.size(); ++i)
      sizes_.bind(node.outputs[i].shape, infer.outputs[static_cast<int>(i)].shape, node.name);
    const LowerFn lower = lowering_of(*node.op);
    if (!lower)
      fail<UnimplementedError>(
          "[{}] '{}' in '{}' has no lowering to StableHLO; docs/operations.md lists the operations "
          "that have one",
          node.op->name, node.name, options_.name);
    Context context(build_, numbers_, node, attrs, inputs,
                    {infer.outputs.begin(), infer.outputs.end()});
    lower(context);
    std::vector<Value> results = context.take_results();
    for (std::size_t i = 0; i < results.size(); ++i)
      values_.insert_or_assign({&node, static_cast<int>(i)}, std::move(results[i]));
    for (const auto& [input, value] : context.writes())
      write_variable(*node.inputs[input].node, value);
  }

  // --- control flow ---

  [[noreturn]] void refuse(const Node& node, const char* why) const {
    fail<UnimplementedError>("[{}] '{}' in '{}' cannot be lowered to StableHLO: {}", node.op->name,
                             node.name, options_.name, why);
  }

  void lower_control(const Node& node) {
    const ControlFlow& flow = *node.control;
    if (flow.random) refuse(node, "it runs random operations");
    std::vector<const Node*> written;  // variables
    std::vector<Value> inputs;
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      const bool is_memory = node.mutates(i);
      if (is_memory) written.push_back(node.inputs[i].node);
      inputs.push_back(is_memory ? variable(*node.inputs[i].node) : value_of(node.inputs[i]));
    }
    switch (flow.kind) {
      case ControlFlow::Kind::kCond:
      case ControlFlow::Kind::kCondGradient: return lower_branches(node, inputs, written);
      case ControlFlow::Kind::kWhile: return lower_while(node, inputs, written);
      case ControlFlow::Kind::kForEach: refuse(node, "the elements of a dataset are on the host");
      case ControlFlow::Kind::kWhileGradient:
        refuse(node, "the gradient of a loop needs as much memory as the loop has iterations");
    }
  }

  // The results of a body, and then the elements of `written` after it.
  std::vector<Value> lower_body(const Body& body, const std::vector<Value>& frame,
                                const std::vector<const Node*>& written) {
    std::vector<Node::Input> feeds;
    for (const Body::FrameFeed& feed : body.feeds) {
      feeds.push_back(feed.tensor);
      sizes_.bind(feed.tensor.node->outputs[0].shape, frame.at(feed.from).shape(),
                  feed.tensor.node->name);
      values_.insert_or_assign({feed.tensor.node, feed.tensor.output}, frame[feed.from]);
    }
    for (const Node* node : needed_nodes(*body.graph, feeds, body.fetches, body.updates))
      lower_node(*node);
    std::vector<Value> results;
    for (const Node::Input& fetch : body.fetches) results.push_back(value_of(fetch));
    for (const Node* handle : written) results.push_back(variables_.at(key_of(*handle)));
    return results;
  }

  // The region of a body whose arguments are the carried values and the written variables.
  std::string region_of(const Body& body, std::vector<Value> frame, std::size_t carried,
                        const std::vector<Type>& arguments, const std::vector<const Node*>& written,
                        bool returns_variables, std::vector<Value>& results) {
    const auto outside = variables_;
    std::string region = build_.region(arguments, [&](std::span<const Value> given) {
      for (std::size_t i = 0; i < given.size(); ++i)
        (i < carried ? frame.at(i) : variables_.at(key_of(*written[i - carried]))) = given[i];
      results = lower_body(body, frame, returns_variables ? written : std::vector<const Node*>());
      return results;
    });
    for (const auto& [key, value] : outside) variables_.at(key) = value;
    return region;
  }

  // Makes the first results the outputs of the node, and the others the elements of the variables.
  void take_results(const Node& node, const std::vector<Value>& results,
                    const std::vector<const Node*>& written) {
    const std::size_t outputs = node.outputs.size();
    for (std::size_t i = 0; i < outputs; ++i) {
      sizes_.bind(node.outputs[i].shape, results[i].shape(), node.name);
      values_.insert_or_assign({&node, static_cast<int>(i)}, results[i]);
    }
    for (std::size_t i = 0; i < written.size(); ++i)
      write_variable(*written[i], results[outputs + i]);
  }

  static std::vector<Type> types_of(const std::vector<Value>& values) {
    std::vector<Type> types;
    for (const Value& value : values) types.push_back(value.type);
    return types;
  }

  void lower_branches(const Node& node, const std::vector<Value>& frame,
                      const std::vector<const Node*>& written) {
    std::vector<std::string> regions;
    std::vector<Type> types;
    for (const Body& body : node.control->bodies) {
      std::vector<Value> results;
      regions.push_back(region_of(body, frame, 0, {}, written, true, results));
      const std::vector<Type> made = types_of(results);
      for (std::size_t i = 0; i < types.size(); ++i)
        if (!(types[i].shape == made[i].shape))
          fail<InvalidArgumentError>(
              "[{}] the branches give output {} different shapes, {} and {}: one program computes "
              "one shape",
              node.op->name, i, types[i].shape.to_string(), made[i].shape.to_string());
      types = made;
    }
    take_results(node, build_.add("if", {&frame[0], 1}, regions, "", types), written);
  }

  void lower_while(const Node& node, const std::vector<Value>& inputs,
                   const std::vector<const Node*>& written) {
    const ControlFlow& flow = *node.control;
    if (flow.maximum_iterations >= 0) refuse(node, "it has a limit of iterations");
    std::vector<Value> carried(inputs.begin(),
                               inputs.begin() + static_cast<std::ptrdiff_t>(flow.carried));
    for (const Node* handle : written) carried.push_back(variable(*handle));
    const std::vector<Type> types = types_of(carried);
    std::vector<Value> condition, results;
    const std::vector<std::string> regions = {
        region_of(flow.bodies[0], inputs, flow.carried, types, written, false, condition),
        region_of(flow.bodies[1], inputs, flow.carried, types, written, true, results)};
    for (std::size_t i = 0; i < types.size(); ++i)
      if (!(types[i].shape == results[i].shape()))
        fail<InvalidArgumentError>(
            "[{}] loop variable {} enters the loop with shape {}, but has shape {} after one "
            "iteration",
            node.op->name, i, types[i].shape.to_string(), results[i].shape().to_string());
    take_results(node, build_.add("while", carried, regions, "", types), written);
  }

  void write_body(const std::vector<Value>& results) {
    const std::string definitions = numbers_.define();
    build_.add("func.return", results, {}, "", {});
    module_.body = definitions + build_.take();
  }

  using TensorKey = std::pair<const Node*, int>;

  const ModuleOptions& options_;
  KnownSizes sizes_;
  Module module_;
  Builder build_;
  NumberParameters numbers_;
  std::map<TensorKey, Value> values_;
  std::map<const void*, Value> variables_;           // by key_of()
  std::map<const void*, std::size_t> parameter_of_;  // of each variable
  std::vector<const Node*> written_;                 // handles, in the order of the first writes
};

}  // namespace

std::vector<const Node*> needed_nodes(const GraphImpl& graph, std::span<const Node::Input> feeds,
                                      std::span<const Node::Input> fetches, bool updates) {
  std::vector<bool> needed(graph.nodes().size(), false);
  const auto need = [&](const Node& node) { needed[static_cast<std::size_t>(node.id)] = true; };
  const auto need_tensor = [&](const Node::Input& tensor) {
    if (std::find(feeds.begin(), feeds.end(), tensor) == feeds.end()) need(*tensor.node);
  };
  for (const Node::Input& fetch : fetches) need_tensor(fetch);
  for (auto node = graph.nodes().rbegin(); node != graph.nodes().rend(); ++node) {
    if (updates && has_effects(**node)) need(**node);
    if (!needed[static_cast<std::size_t>((*node)->id)]) continue;
    for (const Node::Input& input : (*node)->inputs) need_tensor(input);
    for (const Node* control : (*node)->control_inputs) need(*control);
  }
  std::vector<const Node*> nodes;
  for (const auto& node : graph.nodes())
    if (needed[static_cast<std::size_t>(node->id)]) nodes.push_back(node.get());
  return nodes;
}

Module lower_module(const GraphImpl& graph, const ModuleOptions& options) {
  return GraphLowering(graph, options).run();
}

}  // namespace tandem::stablehlo
