#include "graph/stablehlo/lowering.h"

#include <algorithm>

#include "core/status.h"

namespace tandem::stablehlo {

constinit Registered<std::span<const Lowering>()> all_lowerings("stablehlo::all_lowerings");

LowerFn lowering_of(const OpDef& op) {
  const std::span<const Lowering> sorted = all_lowerings();
  const auto found =
      std::lower_bound(sorted.begin(), sorted.end(), op.name,
                       [](const Lowering& a, std::string_view wanted) { return a.op < wanted; });
  return found != sorted.end() && found->op == op.name ? found->lower : nullptr;
}

Context::Context(Builder& to, RunParameters& parameters, const Node& node,
                 std::shared_ptr<const void> attrs, std::vector<Value> inputs,
                 std::vector<TensorType> outputs)
    : build(to),
      parameters_(parameters),
      node_(node),
      attrs_(std::move(attrs)),
      inputs_(std::move(inputs)),
      outputs_(std::move(outputs)),
      has_result_(outputs_.size(), false) {
  for (const TensorType& output : outputs_) results_.push_back({"", output});
  if (attrs_) fields_ = node.op->attrs().save(attrs_.get());
}

void Context::result(std::size_t index, Value value) {
  const Type expected(outputs_.at(index));
  if (value.element() != expected.element || !(value.shape() == expected.shape))
    fail<InternalError>("[{}] its lowering computes {} as output {}, expected {}", op(),
                        value.type.text(), index, expected.text());
  results_[index] = std::move(value);
  has_result_[index] = true;
}

void Context::write(std::size_t index, Value value) {
  const Type& expected = input(index).type;
  if (value.element() != expected.element || !(value.shape() == expected.shape))
    fail<InternalError>("[{}] its lowering writes {} to input {}, expected {}", op(),
                        value.type.text(), index, expected.text());
  writes_.emplace_back(index, std::move(value));
}

const AttrField& Context::field(std::string_view name) const {
  for (const AttrField& field : fields_)
    if (field.name == name) return field;
  fail<InternalError>("[{}] its lowering reads attribute '{}', which it does not have", op(), name);
}

std::int64_t Context::integer(std::string_view name) const { return field(name).integers.at(0); }
double Context::real(std::string_view name) const { return field(name).reals.at(0); }
std::vector<std::int64_t> Context::integers(std::string_view name) const {
  return field(name).integers;
}

Value Context::number(double (*of)(const void* attrs), Element element) const {
  if (!node_.attr_update) return build.constant(of(attrs_.get()), {element, Shape::scalar()});
  return parameters_.number({&node_, attrs_, of}, element);
}

KeyValues Context::key() const { return parameters_.key({&node_, attrs_}); }

void Context::refuse(std::string_view why) const {
  fail<UnimplementedError>("[{}] '{}' cannot be lowered to StableHLO: {}", op(), node_.name, why);
}

std::vector<Value> Context::take_results() {
  for (std::size_t i = 0; i < outputs_.size(); ++i)
    if (!has_result_[i]) fail<InternalError>("[{}] its lowering computes no output {}", op(), i);
  for (std::size_t i = 0; i < inputs_.size(); ++i)
    if (node_.mutates(i) && std::none_of(writes_.begin(), writes_.end(),
                                         [&](const auto& write) { return write.first == i; }))
      fail<InternalError>("[{}] its lowering does not write input {}", op(), i);
  return std::move(results_);
}

}  // namespace tandem::stablehlo
