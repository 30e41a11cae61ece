#include "graph/stablehlo/run_numbers.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "graph/control_flow.h"

namespace tandem::stablehlo {
namespace {

constexpr int kKeyParts = 4;

}  // namespace

Value NumberParameters::number(RunNumber number, Element element) {
  const bool wide = element == Element::kF64;
  std::vector<RunNumber>& numbers = wide ? module_.doubles : module_.numbers;
  const auto same = [&](const RunNumber& other) {
    return other.node->attr_update == number.node->attr_update &&
           other.node->op == number.node->op && other.of == number.of &&
           other.rows == number.rows &&
           number.node->op->attrs().equal(other.attrs.get(), number.attrs.get());
  };
  const auto found = std::find_if(numbers.begin(), numbers.end(), same);
  const auto index = found - numbers.begin();
  const Shape rows{number.rows};
  if (found == numbers.end()) numbers.push_back(std::move(number));
  return {fmt::format("%{}_{}", wide ? "double" : "number", index),
          {wide ? Element::kF64 : Element::kF32, rows}};
}

RunParameters::Key NumberParameters::key(RunKey key) {
  const std::size_t index = module_.keys.size();
  module_.keys.push_back(std::move(key));
  const auto part = [index](int column) {
    return Value{fmt::format("%key_{}_{}", index, column), {Element::kU64, Shape::scalar()}};
  };
  return {part(0), part(1), part(2), part(3)};
}

std::string NumberParameters::define() {
  std::string text = define("number", module_.numbers, Parameter::Kind::kNumbers, float32);
  text += define("double", module_.doubles, Parameter::Kind::kDoubles, float64);
  return text + keys();
}

std::string NumberParameters::define(const char* name, const std::vector<RunNumber>& numbers,
                                     Parameter::Kind kind, DType dtype) {
  if (numbers.empty()) return {};
  std::int64_t length = 0;
  for (const RunNumber& number : numbers) length += number.rows;
  const TensorType spec{dtype, {length}};
  const std::string all = add_parameter(kind, spec);
  std::string text;
  std::int64_t begin = 0;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const std::int64_t end = begin + numbers[i].rows;
    text += fmt::format(
        "%{}_{} = \"stablehlo.slice\"({}) {{start_indices = array<i64: {}>, "
        "limit_indices = array<i64: {}>, strides = array<i64: 1>}} : ({}) -> {}\n",
        name, i, all, begin, end, Type(spec).text(),
        Type(TensorType{dtype, {numbers[i].rows}}).text());
    begin = end;
  }
  return text;
}

std::string NumberParameters::keys() {
  if (module_.keys.empty()) return {};
  const TensorType spec{int64, {static_cast<std::int64_t>(module_.keys.size()), kKeyParts}};
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

std::string NumberParameters::add_parameter(Parameter::Kind kind, const TensorType& spec) {
  module_.parameters.push_back({.kind = kind, .spec = spec});
  return fmt::format("%arg{}", module_.parameters.size() - 1);
}

namespace {

// The attributes of the replica's node in this run.
std::shared_ptr<const void> updated(const Node& node, const std::shared_ptr<const void>& attrs,
                                    std::int64_t more = 0) {
  std::shared_ptr<const void> copy = node.op->attrs().copy(attrs.get());
  if (node.attr_update) (*node.attr_update)(const_cast<void*>(copy.get()), more);
  return copy;
}

}  // namespace

std::vector<double> numbers_of_run(std::span<const RunNumber> numbers,
                                   const NodeOfReplica& node_of) {
  std::vector<double> values;
  for (const RunNumber& number : numbers)
    for (std::int64_t row = 0; row < number.rows; ++row)
      values.push_back(number.of(updated(node_of(*number.node), number.attrs, row).get()));
  return values;
}

void set_count(const Module& module, std::size_t index, std::int64_t count,
               const NodeOfReplica& node_of) {
  node_of(*module.counted[index]).control->random->took(static_cast<std::uint64_t>(count));
}

std::vector<std::int64_t> keys_of_run(const Module& module, const NodeOfReplica& node_of) {
  for (std::size_t i = 0; i < module.counted.size(); ++i) set_count(module, i, 0, node_of);
  std::vector<std::int64_t> parts;
  for (const RunKey& key : module.keys) {
    const Node& node = node_of(*key.node);
    if (node.control) {
      const std::uint64_t before = node.random_before ? node.random_before->total() : 0;
      const std::uint64_t first = node.control->offset_before + before;
      parts.insert(parts.end(), {0, std::bit_cast<std::int64_t>(first), 0, 0});
      continue;
    }
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
