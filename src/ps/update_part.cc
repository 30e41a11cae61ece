#include "ps/update_part.h"

#include <algorithm>

#include "core/status.h"
#include "function/serialize.h"
#include "graph/structural_ops.h"

namespace tandem::ps {
namespace {

// Whether the tensor is an element-wise function of the variable of `handle`, and perhaps of
// others.
bool combines(const Node& node, const Node& handle, std::map<const Node*, bool>& looked) {
  if (node.op == &kReadVariable) return node.inputs[0].node == &handle;
  if (node.op->chain.op == ChainOp::kNone || has_run_attributes(node)) return false;
  const auto [found, added] = looked.emplace(&node, false);
  if (!added) return found->second;
  const bool result =
      std::any_of(node.inputs.begin(), node.inputs.end(),
                  [&](const Node::Input& input) { return combines(*input.node, handle, looked); });
  return looked[&node] = result;
}

}  // namespace

bool has_run_attributes(const Node& node) { return node.attr_update && !node.op->exchange_key; }

UpdatePart::UpdatePart(const Of& of, proto::Update& message)
    : of_(of), message_(message), graph_(make_ref<GraphImpl>()) {}

void UpdatePart::write() {
  proto::Part& part = *message_.mutable_part();
  part.set_name(of_.node.name);
  part.set_updates(true);
  const Node& made = copy(of_.node);
  if (has_run_attributes(of_.node)) part.add_attributes(static_cast<std::uint32_t>(made.id));
  part.mutable_function()->set_graph(serialize_nodes(*graph_));
}

Node& UpdatePart::copy(const Node& node) {
  static const NoAttrs none;
  std::vector<Node::Input> inputs;
  for (const Node::Input& input : node.inputs) inputs.push_back({&source(input), 0});
  return graph_->add(*node.op, AttrsRef(&node.op->attrs(), node.attrs ? node.attrs.get() : &none),
                     inputs, {.name = node.name});
}

// The node in this graph that has the value of `input`.
Node& UpdatePart::source(const Node::Input& input) {
  const auto found = made_.find({input.node, input.output});
  if (found != made_.end()) return *found->second;
  Node& made = input.node->op == &kVarHandle ? handle(*input.node)
               : belongs_here(*input.node)   ? copy(*input.node)
                                             : placeholder(input);
  made_.emplace(std::pair{input.node, input.output}, &made);
  return made;
}

// An assigned value that is computed from the variable's present one, such as that of assign_add(),
// is computed where the variable is. Else concurrent updates would be lost.
bool UpdatePart::belongs_here(const Node& value) {
  return of_.node.op == &kAssignVariable && combines(value, *of_.node.inputs[0].node, looked_);
}

Node& UpdatePart::handle(const Node& of) {
  const TensorType& spec = of.outputs[0];
  Node& made = graph_->variable({spec.dtype, here(spec.shape)}, {.name = of.name});
  proto::Part::Variable& variable = *message_.mutable_part()->add_variables();
  variable.set_node(static_cast<std::uint32_t>(made.id));
  const Shard shard{.id = of_.id_of(of), .rows = of_.shard.rows};
  write_shards({&shard, 1}, *variable.mutable_shards());
  return made;
}

Node& UpdatePart::placeholder(const Node::Input& input) {
  const TensorType& spec = input.node->outputs[static_cast<std::size_t>(input.output)];
  if (!spec.shape.fully_defined())
    fail<UnimplementedError>(
        "[{}] operation '{}' ({}) writes a variable with a value of shape {}, which has to be "
        "known",
        of_.function, of_.node.name, of_.node.op->name, spec.shape.to_string());
  Node& made =
      graph_->add(kPlaceholder, SpecAttrs{spec.dtype, here(spec.shape)}, {}, {.name = "value"});
  proto::Part& part = *message_.mutable_part();
  proto::Update::Input& sent = *message_.add_inputs();
  std::optional<std::uint32_t> row_gradient;
  if (has_rows(spec.shape)) row_gradient = of_.row_gradient(input);
  if (row_gradient) {
    part.add_sparse_feeds(static_cast<std::uint32_t>(part.function().feeds_size()));
    sent.set_row_gradient(*row_gradient);
  } else {
    sent.set_fetch(of_.fetch(input));
  }
  part.mutable_function()->add_feeds(static_cast<std::uint32_t>(made.id));
  if (divided(spec.shape)) {
    sent.mutable_rows()->set_first(of_.shard.first_row);
    sent.mutable_rows()->set_count(of_.shard.rows);
  }
  return made;
}

// Whether an operand of this shape has the rows of the variable. Operands of fewer axes, and of one
// row, are broadcast to all rows.
bool UpdatePart::has_rows(const Shape& shape) const {
  const Shape& variable = of_.node.inputs[0].node->outputs[0].shape;
  return shape.rank() > 0 && shape.rank() == variable.rank() && shape.word(0) == of_.rows;
}

// Whether the shard uses only its own rows of such an operand.
bool UpdatePart::divided(const Shape& shape) const {
  return of_.shard.rows != of_.rows && has_rows(shape);
}

Shape UpdatePart::here(const Shape& shape) const {
  return divided(shape) ? shape_of(of_.shard, shape) : shape;
}

}  // namespace tandem::ps
