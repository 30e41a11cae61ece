// Lowers a graph to one StableHLO function, node by node. lower_module.cc has the nodes, and
// lower_control.cc branches and loops.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "graph/control_flow.h"
#include "graph/stablehlo/run_numbers.h"

namespace tandem::stablehlo {

struct ModuleOptions;

class GraphLowering : private RunParameters {
 public:
  GraphLowering(const GraphImpl& graph, const ModuleOptions& options);
  Module run();

 private:
  using TensorKey = std::pair<const Node*, int>;
  using Handles = std::vector<const Node*>;

  // The values of a branch or a loop that its gradient uses.
  struct Record {
    std::optional<Value> shift;         // at the start of a branch
    std::optional<Value> iterations;    // of a loop
    std::map<std::size_t, Value> kept;  // the carried values before each iteration, as rows
    std::optional<Value> shifts;        // the shift of the body in each iteration
  };
  // The state of the lowering that belongs to a region and to those inside of it.
  struct Scope {
    // The numbers of random operations are those that the host computes plus this 64-bit unsigned
    // scalar; none outside of control flow.
    std::optional<Value> shift;
    // RandomSequence::total() of the control flow that has been lowered, by its sequence.
    std::map<const RandomSequence*, Value> totals;
    // How far control flow that has been lowered has advanced each counter, by its identity.
    std::map<const void*, Value> advances;
    std::map<const Node*, Record> records;
  };

  // Parameters.
  std::int64_t most_advances(const Node& node, const Resource& counter) const;
  Value number(RunNumber number, Element element) override;
  Key key(RunKey key) override;
  Value shifted(const Node& node, const Value& number);
  Value add_parameter(Parameter parameter);
  void bind_feed(std::size_t index);
  Value& variable(const Node& handle);
  void write_variable(const Node& handle, Value value);
  Value constant(const Node& node);

  // Nodes.
  const Value& value_of(const Node::Input& tensor) const;
  void lower_node(const Node& node);
  void lower_operation(const Node& node);

  // Control flow.
  using BodyFn = std::function<std::vector<Value>(std::span<const Value> arguments)>;
  struct LoopState;
  [[noreturn]] void refuse(const Node& node, std::string_view why) const;
  void note_gradients(const Handles& nodes);
  void lower_control(const Node& node);
  std::string region_of(std::span<const Type> arguments, const BodyFn& body);
  std::vector<Value> lower_body(const Body& body, const std::vector<Value>& frame,
                                const Handles& written);
  void take_results(const Node& node, const std::vector<Value>& results, const Handles& written);
  Value advance_of(const Resource& counter);
  void set_advance(Resource& counter, Value advance);
  Value random_count(const Node& node, std::size_t body);
  void set_random_count(const Node& node, const Value& count);
  Record record_of(const Node& node) const;
  void lower_branches(const Node& node, const std::vector<Value>& frame, const Handles& written);
  LoopState start_loop(const Node& node, const std::vector<Value>& inputs, const Handles& written);
  std::vector<Value> bind_state(const LoopState& loop, std::span<const Value> state);
  Value lower_condition(const LoopState& loop, std::span<const Value> state);
  std::vector<Value> lower_iteration(const LoopState& loop, std::span<const Value> state);
  void end_loop(const LoopState& loop, const std::vector<Value>& results);
  void lower_while(const Node& node, const std::vector<Value>& inputs, const Handles& written);
  void lower_while_gradient(const Node& node, const std::vector<Value>& inputs);

  // Text.
  void write_body(const std::vector<Value>& results);

  const ModuleOptions& options_;
  bool any_sizes_ = false;  // whether feeds have unknown sizes
  KnownSizes sizes_;
  Module module_;
  Builder build_;
  NumberParameters numbers_;
  std::map<TensorKey, Value> values_;
  std::map<const void*, Value> variables_;           // by key_of()
  std::map<const void*, std::size_t> parameter_of_;  // of each variable
  Handles written_;                                  // in the order of the first writes
  Scope scope_;
  std::map<const Node*, std::set<std::size_t>> kept_;  // of loops: what their gradients read
  std::vector<Value> counts_;                          // of module_.counted
};

// Equal for all handles of a variable, also those of bodies.
const void* key_of(const Node& handle);

}  // namespace tandem::stablehlo
