#include "graph/stablehlo/module.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cctype>
#include <map>

#include "core/status.h"
#include "device/device_manager.h"
#include "graph/check_numerics.h"
#include "graph/control_flow.h"
#include "graph/structural_ops.h"

namespace tandem::stablehlo {
namespace {

// A constant with more bytes becomes a parameter, so that the text stays small.
constexpr std::size_t kMostLiteralBytes = 4096;

constexpr int kKeyParts = 4;

// Equal for all handles of a variable, also those of bodies.
const void* key_of(const Node& handle) {
  return handle.resource ? handle.resource->identity()
                         : static_cast<const void*>(&outermost(handle));
}

// The parameters that hold the numbers of a run. Each number is a value of its own, defined at the
// start of the function, where the lengths of the parameters are known.
class NumberParameters final : public RunParameters {
 public:
  explicit NumberParameters(Module& module) : module_(module) {}

  Value number(RunNumber number, Element element) override {
    const bool wide = element == Element::kF64;
    std::vector<RunNumber>& numbers = wide ? module_.doubles : module_.numbers;
    const auto same = [&](const RunNumber& other) {
      return other.node->attr_update == number.node->attr_update &&
             other.node->op == number.node->op && other.of == number.of &&
             number.node->op->attrs().equal(other.attrs.get(), number.attrs.get());
    };
    const auto found = std::find_if(numbers.begin(), numbers.end(), same);
    const auto index = found - numbers.begin();
    if (found == numbers.end()) numbers.push_back(std::move(number));
    return {fmt::format("%{}_{}", wide ? "double" : "number", index),
            {wide ? Element::kF64 : Element::kF32, Shape::scalar()}};
  }

  Key key(RunKey key) override {
    const std::size_t index = module_.keys.size();
    module_.keys.push_back(std::move(key));
    const auto part = [index](int column) {
      return Value{fmt::format("%key_{}_{}", index, column), {Element::kU64, Shape::scalar()}};
    };
    return {part(0), part(1), part(2), part(3)};
  }

  // Adds the parameters to the module, and returns the text that defines the numbers.
  std::string define() {
    std::string text =
        numbers("number", module_.numbers.size(), Parameter::Kind::kNumbers, float32);
    text += numbers("double", module_.doubles.size(), Parameter::Kind::kDoubles, float64);
    return text + keys();
  }

 private:
  std::string numbers(const char* name, std::size_t count, Parameter::Kind kind, DType dtype) {
    if (count == 0) return {};
    const TensorSpec spec{dtype, {static_cast<std::int64_t>(count)}};
    const std::string all = add_parameter(kind, spec);
    const std::string row = Type(TensorSpec{dtype, {1}}).text();
    const std::string scalar = Type(TensorSpec{dtype, Shape::scalar()}).text();
    std::string text;
    for (std::size_t i = 0; i < count; ++i)
      text += fmt::format(
          "%{0}_row_{1} = \"stablehlo.slice\"({2}) {{start_indices = array<i64: {1}>, "
          "limit_indices = array<i64: {3}>, strides = array<i64: 1>}} : ({4}) -> {5}\n"
          "%{0}_{1} = \"stablehlo.reshape\"(%{0}_row_{1}) : ({5}) -> {6}\n",
          name, i, all, i + 1, Type(spec).text(), row, scalar);
    return text;
  }

  std::string keys() {
    if (module_.keys.empty()) return {};
    const TensorSpec spec{int64, {static_cast<std::int64_t>(module_.keys.size()), kKeyParts}};
    const std::string all = add_parameter(Parameter::Kind::kKeys, spec);
    std::string text;
    for (std::size_t i = 0; i < module_.keys.size(); ++i)
      for (int column = 0; column < kKeyParts; ++column)
        text += fmt::format(
            "%key_cell_{0}_{1} = \"stablehlo.slice\"({2}) {{start_indices = array<i64: {0}, {1}>, "
            "limit_indices = array<i64: {3}, {4}>, strides = array<i64: 1, 1>}} : ({5}) -> "
            "tensor<1x1xi64>\n"
            "%key_bits_{0}_{1} = \"stablehlo.reshape\"(%key_cell_{0}_{1}) : (tensor<1x1xi64>) -> "
            "tensor<i64>\n"
            "%key_{0}_{1} = \"stablehlo.bitcast_convert\"(%key_bits_{0}_{1}) : (tensor<i64>) -> "
            "tensor<ui64>\n",
            i, column, all, i + 1, column + 1, Type(spec).text());
    return text;
  }

  std::string add_parameter(Parameter::Kind kind, const TensorSpec& spec) {
    module_.parameters.push_back({.kind = kind, .spec = spec});
    return fmt::format("%arg{}", module_.parameters.size() - 1);
  }

  Module& module_;
};

class GraphLowering {
 public:
  GraphLowering(const GraphImpl& graph, const ModuleOptions& options)
      : options_(options), sizes_(options.sizes), numbers_(module_) {
    sizes_.set_count(graph.sizes().count());
    module_.name = options.name;
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
    write_text(results);
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
        {.kind = Parameter::Kind::kVariable, .spec = handle.outputs[0], .handle = &outside});
    return variables_.emplace(key, std::move(elements)).first->second;
  }

  void write_variable(const Node& handle, Value value) {
    variable(handle) = std::move(value);
    const auto same = [&](const Node* other) { return key_of(*other) == key_of(handle); };
    if (std::none_of(written_.begin(), written_.end(), same)) written_.push_back(&handle);
  }

  Value constant(const Node& node) {
    const TensorSpec& spec = node.outputs[0];
    if (!node.value.defined() && node.literal.size() <= kMostLiteralBytes)
      return build_.literal(spec, node.literal.data());
    Tensor value = node.value;
    if (!value.defined())
      value = from_host(DeviceManager::get().host(), spec.shape, spec.dtype, node.literal.data());
    return add_parameter(
        {.kind = Parameter::Kind::kConstant, .spec = spec, .constant = std::move(value)});
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
      fail<UnimplementedError>("[{}] '{}' cannot be lowered to StableHLO", node.op->name,
                               node.name);
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

  // --- text ---

  void write_text(const std::vector<Value>& results) {
    const std::string definitions = numbers_.define();
    std::string arguments, types, names;
    for (std::size_t i = 0; i < module_.parameters.size(); ++i) {
      const auto written = std::find(module_.written.begin(), module_.written.end(), i);
      std::string donation;
      if (written != module_.written.end())
        donation = fmt::format(
            " {{tf.aliasing_output = {} : i32}}",
            module_.fetches.size() + static_cast<std::size_t>(written - module_.written.begin()));
      arguments += fmt::format("{}%arg{}: {}{}", i > 0 ? ", " : "", i,
                               Type(module_.parameters[i].spec).text(), donation);
    }
    for (const Value& result : results) {
      const char* separator = types.empty() ? "" : ", ";
      types += separator + result.type.text();
      names += separator + result.name;
    }
    std::string symbol = options_.name;
    for (char& c : symbol)
      if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
    module_.text = fmt::format(
        "module @{} attributes {{mhlo.num_replicas = {} : i32, mhlo.num_partitions = 1 : i32}} {{\n"
        "func.func public @main({}) -> ({}) {{\n{}{}\"func.return\"({}) : ({}) -> ()\n}}\n}}\n",
        symbol, options_.num_replicas, arguments, types, definitions, build_.take(), names, types);
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

namespace {

// The attributes of the replica's node in this run.
std::shared_ptr<const void> updated(const Node& node, const std::shared_ptr<const void>& attrs) {
  std::shared_ptr<const void> copy = node.op->attrs().copy(attrs.get());
  if (node.attr_update) (*node.attr_update)(const_cast<void*>(copy.get()));
  return copy;
}

}  // namespace

std::vector<double> numbers_of_run(std::span<const RunNumber> numbers,
                                   const NodeOfReplica& node_of) {
  std::vector<double> values;
  for (const RunNumber& number : numbers)
    values.push_back(number.of(updated(node_of(*number.node), number.attrs).get()));
  return values;
}

std::vector<std::int64_t> keys_of_run(std::span<const RunKey> keys, const NodeOfReplica& node_of) {
  std::vector<std::int64_t> parts;
  for (const RunKey& key : keys) {
    const Node& node = node_of(*key.node);
    // The key and the offset are the replica's own; sizes do not matter to them.
    const std::shared_ptr<const void> attrs = updated(node, node.attrs);
    std::int64_t offset = 0;
    for (const AttrField& field : node.op->attrs().save(attrs.get()))
      if (field.name == "offset") offset = field.integers.at(0);
    const RandomKey random = node.op->exchange_key(const_cast<void*>(attrs.get()), {});
    for (const std::uint64_t part :
         {random.seed, random.number, static_cast<std::uint64_t>(random.stream)})
      parts.push_back(std::bit_cast<std::int64_t>(part));
    parts.push_back(offset);
  }
  return parts;
}

}  // namespace tandem::stablehlo
