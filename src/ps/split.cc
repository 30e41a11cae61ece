#include "ps/split.h"

#include <algorithm>
#include <utility>

#include "core/status.h"
#include "function/serialize.h"
#include "graph/selection.h"
#include "graph/structural_ops.h"
#include "ps/lookups.h"
#include "ps/update_part.h"

namespace tandem::ps {
namespace {

bool writes(const Node& node) {
  for (std::size_t i = 0; i < node.inputs.size(); ++i)
    if (node.mutates(i)) return true;
  return false;
}

// Whether the operation acts on each element of its variables, and of the other operands, alone.
bool is_elementwise(const Node& update) {
  return update.op == &kAssignVariable || (update.op->traits & kElementwise) != 0;
}

class Splitter {
 public:
  Splitter(const TracedFunction& function, const ShardsOf& shards_of)
      : function_(function),
        shards_of_(shards_of),
        row_gradients_([this](const Node::Input& tensor) { return fetch_from_worker(tensor); }) {}

  SplitFunction run() {
    result_.message.set_results(static_cast<std::uint32_t>(function_.fetches.size()));
    read_elements();
    fetches_ = function_.fetches;
    for (const auto& node : function_.graph->nodes())
      if (writes(*node)) add_update(*node);
    for (const proto::RowGradient& message : row_gradients_.messages())
      *result_.message.add_row_gradients() = message;
    write_worker();
    return std::move(result_);
  }

 private:
  template <class... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) const {
    fail<UnimplementedError>("[{}] {}", function_.name,
                             fmt::format(format, std::forward<Args>(args)...));
  }

  void read_elements() {
    std::size_t tensors = 0;
    for (const TracedElement& element : function_.elements) {
      if (element.captured)
        refuse(
            "an iterator was captured, which the workers do not have: pass the result of "
            "create_per_worker_dataset() as an argument");
      proto::Element& made = *result_.message.add_elements();
      made.set_iterator(static_cast<std::uint32_t>(element.argument));
      made.set_tensors(static_cast<std::uint32_t>(element.tensors.size()));
      tensors += element.tensors.size();
    }
    result_.message.set_arguments(static_cast<std::uint32_t>(function_.feeds.size() - tensors));
  }

  // Returns the index of the fetch.
  std::uint32_t fetch_from_worker(const Node::Input& tensor) {
    const auto found = std::find(fetches_.begin(), fetches_.end(), tensor);
    const auto index = static_cast<std::uint32_t>(found - fetches_.begin());
    if (found == fetches_.end()) fetches_.push_back(tensor);
    return index;
  }

  void add_update(const Node& node) {
    if (node.control)
      refuse("operation '{}' ({}) writes variables in a branch or loop: do it outside of them",
             node.name, node.op->name);
    const std::vector<Shard> shards = shards_of(*node.inputs[0].node);
    if (shards.size() > 1 && !is_elementwise(node))
      refuse(
          "operation '{}' ({}) updates variable '{}', which has {} shards, as a whole: give it one "
          "shard (ParameterServerOptions::variable_partitioner) or use another optimizer",
          node.name, node.op->name, node.inputs[0].node->name, shards.size());
    std::vector<std::pair<const Node*, std::vector<Shard>>> written;
    for (std::size_t i = 0; i < node.inputs.size(); ++i)
      if (node.inputs[i].node->op == &kVarHandle)
        written.emplace_back(node.inputs[i].node, shards_beside(node, i, shards));
    for (std::size_t shard = 0; shard < shards.size(); ++shard) {
      result_.update_attributes.push_back(has_run_attributes(node) ? &node : nullptr);
      const auto id_of = [&](const Node& handle) {
        const auto of_handle = [&](const auto& pair) { return pair.first == &handle; };
        return std::find_if(written.begin(), written.end(), of_handle)->second[shard].id;
      };
      UpdatePart({.function = function_.name,
                  .node = node,
                  .rows = rows_of(shards),
                  .shard = shards[shard],
                  .id_of = id_of,
                  .fetch = [this](const Node::Input& tensor) { return fetch_from_worker(tensor); },
                  .row_gradient =
                      [this](const Node::Input& tensor) { return row_gradients_.find(tensor); }},
                 *result_.message.add_updates())
          .write();
    }
  }

  // The shards of the variable that is input `i` of an update: alike and on the same servers as
  // `first`, those of its first variable.
  std::vector<Shard> shards_beside(const Node& update, std::size_t i,
                                   const std::vector<Shard>& first) const {
    const Node& handle = *update.inputs[i].node;
    std::vector<Shard> shards = shards_of(handle);
    const auto beside = [](const Shard& a, const Shard& b) {
      return server_of(a.id) == server_of(b.id) && a.rows == b.rows;
    };
    if (!std::equal(shards.begin(), shards.end(), first.begin(), first.end(), beside))
      refuse(
          "operation '{}' ({}) updates variables '{}' and '{}', which are not on the same server, "
          "or not divided alike",
          update.name, update.op->name, update.inputs[0].node->name, handle.name);
    return shards;
  }

  std::vector<Shard> shards_of(const Node& handle) const {
    if (!handle.resource) refuse("variable '{}' belongs to the graph of a session", handle.name);
    return shards_of_(*handle.resource);
  }

  void write_worker() {
    std::vector<const Node*> outputs;
    for (const Node::Input& fetch : fetches_) outputs.push_back(fetch.node);
    for (const Node::Input& feed : function_.feeds) outputs.push_back(feed.node);
    Selection selection;
    if (!outputs.empty()) selection = select_nodes(*function_.graph, outputs, false);
    for (const Node* node : selection.nodes) check(*node);
    std::vector<Node::Input> feeds = function_.feeds;
    const auto lookups = write_lookups(selection);
    if (!lookups.empty()) {
      selection = select_nodes(*function_.graph, outputs, false, {lookups.begin(), lookups.end()});
      for (const Node* lookup : lookups) feeds.push_back({const_cast<Node*>(lookup), 0});
    }
    write_part(selection, feeds, fetches_, *result_.message.mutable_worker());
    for (const Node* node : selection.nodes)
      if (has_run_attributes(*node) && selection.fed.count(node) == 0)
        result_.worker_attributes.push_back(node);
  }

  // Writes the rows that the worker reads. Returns the nodes that are fed with them.
  std::vector<const Node*> write_lookups(const Selection& needed) {
    std::vector<const Node*> lookups;
    std::vector<Node::Input> indices;
    std::vector<const Node*> outputs;
    for (const LookedUpVariable& variable : find_lookups(needed.nodes, fetches_, function_.feeds)) {
      proto::RowRead& read = *result_.message.add_row_reads();
      write_shards(shards_of(*variable.handle), *read.mutable_shards());
      for (const Node* lookup : variable.lookups) {
        read.add_indices(static_cast<std::uint32_t>(indices.size()));
        indices.push_back(lookup->inputs[1]);
        lookups.push_back(lookup);
      }
    }
    if (lookups.empty()) return lookups;
    for (const Node::Input& index : indices) outputs.push_back(index.node);
    for (const Node::Input& feed : function_.feeds) outputs.push_back(feed.node);
    write_part(select_nodes(*function_.graph, outputs, false), function_.feeds, indices,
               *result_.message.mutable_indices());
    return lookups;
  }

  void write_part(Selection selection, std::span<const Node::Input> feeds,
                  std::span<const Node::Input> fetches, proto::Part& part) const {
    selection.sends_attributes = true;
    const auto ids = selection.numbers();
    part.set_name(function_.name);
    for (const Node* node : selection.nodes) {
      if (selection.fed.count(node) > 0) continue;
      if (node->op == &kVarHandle) {
        proto::Part::Variable& variable = *part.add_variables();
        variable.set_node(ids.at(node));
        write_shards(shards_of(*node), *variable.mutable_shards());
      }
      if (has_run_attributes(*node)) part.add_attributes(ids.at(node));
    }
    *part.mutable_function() = serialize_function(*function_.graph, selection, feeds, fetches);
  }

  // Refuses a node of the worker's part that depends on an update.
  void check(const Node& node) const {
    if (writes(node))
      refuse("the result of operation '{}' ({}), which writes a variable, is used by others",
             node.name, node.op->name);
    if (node.op != &kReadVariable) return;
    const Node* handle = node.inputs[0].node;
    for (const auto& other : function_.graph->nodes()) {
      if (other->id >= node.id) return;
      for (std::size_t i = 0; i < other->inputs.size(); ++i)
        if (other->inputs[i].node == handle && other->mutates(i))
          refuse(
              "variable '{}' is read after operation '{}' ({}) updates it: read it in the next "
              "step",
              handle->name, other->name, other->op->name);
    }
  }

  const TracedFunction& function_;
  const ShardsOf& shards_of_;
  RowGradients row_gradients_;
  std::vector<Node::Input> fetches_;
  SplitFunction result_;
};

}  // namespace

SplitFunction split(const TracedFunction& function, const ShardsOf& shards_of) {
  return Splitter(function, shards_of).run();
}

proto::RunAttributes attributes_of_run(const Node& node) {
  const AttrsType& type = node.op->attrs();
  const std::shared_ptr<const void> attrs = type.copy(node.attrs.get());
  (*node.attr_update)(const_cast<void*>(attrs.get()));
  proto::RunAttributes result;
  write_attributes(type.save(attrs.get()), *result.mutable_fields());
  return result;
}

}  // namespace tandem::ps
