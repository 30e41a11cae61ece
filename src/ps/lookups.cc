#include "ps/lookups.h"

#include <algorithm>
#include <unordered_set>

#include "function/serialize.h"
#include "graph/control_flow.h"
#include "graph/structural_ops.h"
#include "ops/array/array_ops.h"
#include "ops/array/index.h"
#include "ops/math/scalar_attrs.h"
#include "ps/update_part.h"

namespace tandem::ps {
namespace {

bool of_first_axis(std::int64_t axis, int rank) { return axis == 0 || axis == -rank; }

bool is_lookup(const Node& node) {
  return node.op == &kGather && of_first_axis(node.attrs_as<GatherAttrs>().axis,
                                              node.inputs[0].node->outputs[0].shape.rank());
}

bool is_gradient_of_lookup(const Node& node) {
  if (node.op != &kGatherGrad) return false;
  const auto& attrs = node.attrs_as<GatherGradAttrs>();
  return attrs.shape.fully_defined() && of_first_axis(attrs.axis, attrs.shape.rank());
}

// Whether nodes can be computed before variables are read, and again afterwards.
class FromFeeds {
 public:
  explicit FromFeeds(std::span<const Node::Input> feeds) {
    for (const Node::Input& feed : feeds) known_.emplace(feed.node, true);
  }
  bool operator()(const Node& node) {
    const auto found = known_.find(&node);
    if (found != known_.end()) return found->second;
    const bool result = !node.control && !node.attr_update && node.op->mutated_inputs == 0 &&
                        (node.op->traits & kStateful) == 0 &&
                        std::all_of(node.inputs.begin(), node.inputs.end(),
                                    [&](const Node::Input& input) { return (*this)(*input.node); });
    known_.emplace(&node, result);
    return result;
  }

 private:
  std::unordered_map<const Node*, bool> known_;
};

}  // namespace

std::vector<LookedUpVariable> find_lookups(std::span<const Node* const> needed,
                                           std::span<const Node::Input> fetches,
                                           std::span<const Node::Input> feeds) {
  FromFeeds from_feeds(feeds);
  std::unordered_set<const Node*> whole;  // variables that are read
  std::vector<LookedUpVariable> variables;
  const auto read_whole = [&](const Node& node) {
    if (node.op == &kReadVariable) whole.insert(node.inputs[0].node);
  };
  for (const Node::Input& fetch : fetches) read_whole(*fetch.node);
  for (const Node* node : needed) {
    if (node->op == &kVarHandle) variables.push_back({.handle = node});
    if (node->control)  // its bodies may read variables
      for (const Body& body : node->control->bodies)
        for (const auto& inside : body.graph->nodes())
          if (inside->outside) whole.insert(inside->outside);
    for (std::size_t i = 0; i < node->inputs.size(); ++i) {
      const Node& input = *node->inputs[i].node;
      if (input.op == &kVarHandle && node->op != &kReadVariable) whole.insert(&input);
      if (i > 0 || !is_lookup(*node) || !from_feeds(*node->inputs[1].node)) read_whole(input);
    }
  }
  std::erase_if(variables, [&](const LookedUpVariable& v) { return whole.contains(v.handle); });
  for (LookedUpVariable& variable : variables)
    for (const Node* node : needed)
      if (is_lookup(*node) && node->inputs[0].node->op == &kReadVariable &&
          node->inputs[0].node->inputs[0].node == variable.handle)
        variable.lookups.push_back(node);
  std::erase_if(variables, [](const LookedUpVariable& v) { return v.lookups.empty(); });
  return variables;
}

// --- gradients ---

namespace {

// Whether the result is 0 where an input is (of a quotient: the first), if all operands are finite.
bool keeps_zeros(const Node& node) {
  const auto form = node.op->chain.form;
  switch (node.op->chain.op) {
    case ChainOp::kNeg:
    case ChainOp::kMul: return true;
    case ChainOp::kDiv: return form == ChainForm::kPlain || form == ChainForm::kNumberRight;
    case ChainOp::kMove: return form == ChainForm::kCast;
    case ChainOp::kClip: {
      const auto& attrs = node.attrs_as<ClipAttrs>();
      return attrs.low <= 0.0 && attrs.high >= 0.0;
    }
    default: return false;
  }
}

bool adds(const Node& node) {
  const ChainRole& role = node.op->chain;
  return (role.op == ChainOp::kAdd &&
          (role.form == ChainForm::kSum || role.form == ChainForm::kPlain)) ||
         (role.op == ChainOp::kSub && role.form == ChainForm::kPlain);
}

// Whether the tensor has the same values for all rows of a tensor of this shape.
bool is_same_for_rows(const Node::Input& input, const Shape& shape) {
  const Shape& own = input.node->outputs[static_cast<std::size_t>(input.output)].shape;
  return own.fully_defined() &&
         (own.rank() < shape.rank() || (own.rank() == shape.rank() && own.word(0) == 1));
}

}  // namespace

bool RowGradients::has_few_rows(const Node& node) {
  const auto known = has_few_rows_.find(&node);
  if (known != has_few_rows_.end()) return known->second;
  const auto few = [&](const Node::Input& input) {
    return has_few_rows(*input.node) && input.node->outputs[0].shape == node.outputs[0].shape;
  };
  bool result = is_gradient_of_lookup(node);
  if (!result && !has_run_attributes(node) && !node.inputs.empty()) {
    const auto count = std::count_if(node.inputs.begin(), node.inputs.end(), few);
    const auto same = [&](const Node::Input& input) {
      return few(input) || is_same_for_rows(input, node.outputs[0].shape);
    };
    if (adds(node))
      result = count == static_cast<std::ptrdiff_t>(node.inputs.size());
    else if (keeps_zeros(node))
      result = count > 0 && std::all_of(node.inputs.begin(), node.inputs.end(), same) &&
               (node.op->chain.op != ChainOp::kDiv || (few(node.inputs[0]) && count == 1));
  }
  has_few_rows_.emplace(&node, result);
  return result;
}

// The message of a tensor.
class RowGradients::Formula {
 public:
  Formula(RowGradients& owner, proto::RowGradient& message)
      : owner_(owner), message_(message), graph_(make_ref<GraphImpl>()) {}

  void write(const Node& node) {
    message_.set_rows(node.outputs[0].shape.word(0));
    if (is_gradient_of_lookup(node)) return add_lookup(node);
    rows_ = graph_->sizes()->symbol("rows");
    Node& result = source({const_cast<Node*>(&node), 0});
    proto::Part& part = *message_.mutable_formula();
    part.set_name("gradient of rows");
    std::vector<Node::Input> feeds;
    for (const auto* nodes : {&sums_, &operands_})
      for (Node* feed : *nodes) feeds.push_back({feed, 0});
    const Node::Input fetches[] = {{&result, 0}};
    *part.mutable_function() =
        serialize_function(*graph_, select_nodes(*graph_, {}, false), feeds, fetches);
  }

 private:
  void add_lookup(const Node& node) {
    proto::RowGradient::Lookup& lookup = *message_.add_lookups();
    lookup.set_rows(owner_.fetch_(node.inputs[0]));
    lookup.set_indices(owner_.fetch_(node.inputs[1]));
  }

  Node& source(const Node::Input& input) {
    const auto found = made_.find({input.node, input.output});
    if (found != made_.end()) return *found->second;
    Node& made = make(input);
    made_.emplace(std::pair{input.node, input.output}, &made);
    return made;
  }

  Node& make(const Node::Input& input) {
    static const NoAttrs none;
    const Node& node = *input.node;
    if (!owner_.has_few_rows(node)) {
      message_.add_operands(owner_.fetch_(input));
      return *operands_.emplace_back(
          &placeholder(node.outputs[static_cast<std::size_t>(input.output)]));
    }
    if (is_gradient_of_lookup(node)) {
      add_lookup(node);
      TensorType spec = node.outputs[0];
      spec.shape.set(0, rows_);
      return *sums_.emplace_back(&placeholder(spec));
    }
    std::vector<Node::Input> inputs;
    for (const Node::Input& of_node : node.inputs) inputs.push_back({&source(of_node), 0});
    return graph_->add(*node.op, AttrsRef(&node.op->attrs(), node.attrs ? node.attrs.get() : &none),
                       inputs, {.name = node.name});
  }

  Node& placeholder(const TensorType& spec) {
    return graph_->add(kPlaceholder, SpecAttrs{spec.dtype, spec.shape}, {}, {.name = "value"});
  }

  RowGradients& owner_;
  proto::RowGradient& message_;
  RefPtr<GraphImpl> graph_;
  std::int64_t rows_ = 0;  // the size of the sums' first axis
  std::map<std::pair<const Node*, int>, Node*> made_;
  std::vector<Node*> sums_, operands_;
};

std::optional<std::uint32_t> RowGradients::find(const Node::Input& tensor) {
  if (!has_few_rows(*tensor.node)) return std::nullopt;
  const auto [at, added] =
      found_.try_emplace(tensor.node, static_cast<std::uint32_t>(messages_.size()));
  if (added) Formula(*this, messages_.emplace_back()).write(*tensor.node);
  return at->second;
}

}  // namespace tandem::ps
