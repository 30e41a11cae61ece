// Branches, loops and their gradients in StableHLO.
//
// The host computes the numbers of random operations as if no control flow ran any. The module adds
// a shift: each run of a body continues where the one before ended. In the same way, the host
// updates attributes for the counters before the run, and the module counts how far its bodies
// have advanced them.
#include <algorithm>
#include <utility>

#include "core/status.h"
#include "graph/collective.h"
#include "graph/graph.h"
#include "graph/stablehlo/graph_lowering.h"
#include "graph/stablehlo/lower_module.h"

namespace tandem::stablehlo {
namespace {

Type count_type() { return {Element::kU64, Shape::scalar()}; }
Type index_type() { return {Element::kI64, Shape::scalar()}; }

std::vector<Type> types_of(const std::vector<Value>& values) {
  std::vector<Type> types;
  for (const Value& value : values) types.push_back(value.type);
  return types;
}

// The values of a type in the iterations of a loop; at least one, so that there is a row.
Type rows_of(const Type& type, std::int64_t iterations) {
  return {type.element, stacked(std::max<std::int64_t>(1, iterations), type.shape)};
}

}  // namespace

void GraphLowering::refuse(const Node& node, std::string_view why) const {
  fail<UnimplementedError>("[{}] '{}' in '{}' cannot be lowered to StableHLO: {}", node.op->name,
                           node.name, options_.name, why);
}

// Notes what loops have to keep for the gradients among the nodes.
void GraphLowering::note_gradients(const Handles& nodes) {
  for (const Node* node : nodes) {
    if (!node->control || node->control->kind != ControlFlow::Kind::kWhileGradient) continue;
    std::set<std::size_t>& kept = kept_[node->control->forward];
    for (const Body::FrameFeed& feed : node->control->bodies[0].feeds)
      if (feed.from < node->control->elements) kept.insert(feed.from);
  }
}

void GraphLowering::lower_control(const Node& node) {
  for (const Body& body : node.control->bodies)
    if (body.updates && body.graph->has_actions())
      refuse(node, "the host is to do something after each run of a body");
  Handles written;  // variables
  std::vector<Value> inputs;
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    const bool is_memory = node.mutates(i);
    if (is_memory) written.push_back(node.inputs[i].node);
    inputs.push_back(is_memory ? variable(*node.inputs[i].node) : value_of(node.inputs[i]));
  }
  switch (node.control->kind) {
    case ControlFlow::Kind::kCond:
    case ControlFlow::Kind::kCondGradient: return lower_branches(node, inputs, written);
    case ControlFlow::Kind::kWhile: return lower_while(node, inputs, written);
    case ControlFlow::Kind::kForEach: refuse(node, "the elements of a dataset are on the host");
    case ControlFlow::Kind::kWhileGradient: return lower_while_gradient(node, inputs);
  }
}

// --- bodies ---

std::string GraphLowering::region_of(std::span<const Type> arguments, const BodyFn& body) {
  const auto variables = variables_;
  const Scope outside = scope_;
  std::string region = build_.region(arguments, body);
  for (const auto& [key, value] : variables) variables_.at(key) = value;
  scope_ = outside;
  return region;
}

// The results of a body, and then the elements of `written` after it.
std::vector<Value> GraphLowering::lower_body(const Body& body, const std::vector<Value>& frame,
                                             const Handles& written) {
  std::vector<Node::Input> feeds;
  for (const Body::FrameFeed& feed : body.feeds) {
    feeds.push_back(feed.tensor);
    sizes_.bind(feed.tensor.node->outputs[0].shape, frame.at(feed.from).shape(),
                feed.tensor.node->name);
    values_.insert_or_assign({feed.tensor.node, feed.tensor.output}, frame[feed.from]);
  }
  const Handles nodes = needed_nodes(*body.graph, feeds, body.fetches, body.updates);
  note_gradients(nodes);
  for (const Node* node : nodes) {
    // The host runs the collectives of replicas that differ only outside of control flow.
    if (node->member && node->member->group->size() != module_.num_replicas)
      refuse(*node,
             "the replicas that it is to run on have different programs, as they have for a "
             "batch that does not divide evenly, and it is in a branch or a loop");
    lower_node(*node);
  }
  if (body.updates)
    for (const RefPtr<Resource>& counter : body.graph->counters())
      set_advance(*counter, build_.add(advance_of(*counter), build_.integer(1, index_type())));
  std::vector<Value> results;
  for (const Node::Input& fetch : body.fetches) results.push_back(value_of(fetch));
  for (const Node* handle : written) results.push_back(variables_.at(key_of(*handle)));
  return results;
}

// Makes the first results the outputs of the node, and the next the elements of the variables.
void GraphLowering::take_results(const Node& node, const std::vector<Value>& results,
                                 const Handles& written) {
  const std::size_t outputs = node.outputs.size();
  for (std::size_t i = 0; i < outputs; ++i) {
    sizes_.bind(node.outputs[i].shape, results[i].shape(), node.name);
    values_.insert_or_assign({&node, static_cast<int>(i)}, results[i]);
  }
  for (std::size_t i = 0; i < written.size(); ++i)
    write_variable(*written[i], results[outputs + i]);
}

// How far control flow before has advanced the counter.
Value GraphLowering::advance_of(const Resource& counter) {
  const auto found = scope_.advances.find(counter.identity());
  return found == scope_.advances.end() ? build_.integer(0, index_type()) : found->second;
}

void GraphLowering::set_advance(Resource& counter, Value advance) {
  scope_.advances.insert_or_assign(counter.identity(), std::move(advance));
  const auto same = [&](const Resource* other) { return other->identity() == counter.identity(); };
  if (std::none_of(module_.counters.begin(), module_.counters.end(), same))
    module_.counters.push_back(&counter);
}

// How many random operations a run of the body has run, at its end.
Value GraphLowering::random_count(const Node& node, std::size_t body) {
  const RandomSequence::BodyCount& counted = node.control->random->bodies()[body];
  const Value count = build_.integer(counted.count, count_type());
  return counted.last ? build_.add(count, scope_.totals.at(counted.last.get())) : count;
}

void GraphLowering::set_random_count(const Node& node, const Value& count) {
  const auto before = scope_.totals.find(node.random_before.get());
  scope_.totals.insert_or_assign(
      node.control->random.get(),
      before == scope_.totals.end() ? count : build_.add(count, before->second));
  if (scope_.shift) return;  // inside of control flow, which counts them
  module_.counted.push_back(&node);
  counts_.push_back(count);
}

GraphLowering::Record GraphLowering::record_of(const Node& node) const {
  const auto found = scope_.records.find(node.control->forward);
  if (found == scope_.records.end())
    refuse(node, "the control flow that it is the gradient of is in another program");
  return found->second;
}

// --- branches ---

void GraphLowering::lower_branches(const Node& node, const std::vector<Value>& frame,
                                   const Handles& written) {
  const ControlFlow& flow = *node.control;
  std::optional<Value> start;
  if (flow.random) start = flow.forward ? *record_of(node).shift : key({&node, {}}).number;
  const bool counts = flow.random && !flow.forward;
  const std::vector<Resource*> counters = counters_of(flow);
  std::vector<std::string> regions;
  std::vector<Type> types;
  for (std::size_t k = 0; k < flow.bodies.size(); ++k) {
    std::vector<Value> results;
    regions.push_back(region_of({}, [&](std::span<const Value>) {
      scope_.shift = start;
      results = lower_body(flow.bodies[k], frame, written);
      for (const Resource* counter : counters) results.push_back(advance_of(*counter));
      if (counts) results.push_back(random_count(node, k));
      return results;
    }));
    const std::vector<Type> made = types_of(results);
    for (std::size_t i = 0; i < types.size(); ++i)
      if (!(types[i].shape == made[i].shape))
        fail<InvalidArgumentError>(
            "[{}] the branches give output {} different shapes, {} and {}: one program computes "
            "one shape",
            node.op->name, i, types[i].shape.to_string(), made[i].shape.to_string());
    types = made;
  }
  const std::vector<Value> results = build_.add("if", {&frame[0], 1}, regions, "", types);
  take_results(node, results, written);
  for (std::size_t i = 0; i < counters.size(); ++i)
    set_advance(*counters[i], results[node.outputs.size() + written.size() + i]);
  if (!counts) return;
  set_random_count(node, results.back());
  scope_.records[&node].shift = start;
}

// --- loops ---

// A loop carries the values of the node, then the written variables, and then the values whose
// places are members here.
struct GraphLowering::LoopState {
  const Node& node;
  const std::vector<Value>& inputs;
  const Handles& written;
  std::vector<Value> start = {};
  std::map<Resource*, std::size_t> advances = {};
  std::optional<std::size_t> shift = {};         // before the condition
  std::optional<std::size_t> iterations = {};    // so far
  std::map<std::size_t, std::size_t> kept = {};  // rows, by carried value
  std::optional<std::size_t> shifts = {};        // rows

  const ControlFlow& flow() const { return *node.control; }
  std::size_t values() const { return flow().carried + written.size(); }
  std::size_t add(Value value) {
    start.push_back(std::move(value));
    return start.size() - 1;
  }
};

GraphLowering::LoopState GraphLowering::start_loop(const Node& node,
                                                   const std::vector<Value>& inputs,
                                                   const Handles& written) {
  LoopState loop{node, inputs, written};
  const ControlFlow& flow = loop.flow();
  const std::int64_t most = flow.maximum_iterations;
  if (const GraphImpl& condition = *flow.bodies[0].graph;
      !written_handles(condition).empty() || !condition.counters().empty())
    refuse(node, "its condition writes variables");
  loop.start.assign(inputs.begin(), inputs.begin() + static_cast<std::ptrdiff_t>(flow.carried));
  for (const Node* handle : written) loop.start.push_back(variable(*handle));
  for (Resource* counter : counters_of(flow))
    loop.advances[counter] = loop.add(advance_of(*counter));
  if (flow.random) {
    if (flow.random->bodies()[0].last)
      refuse(node, "its condition has control flow that runs random operations");
    loop.shift = loop.add(key({&node, {}}).number);
  }
  const auto kept = kept_.find(&node);
  if (most >= 0) loop.iterations = loop.add(build_.integer(0, index_type()));
  if (kept == kept_.end()) return loop;
  if (most < 0)
    refuse(node,
           "its gradient needs the loop variables of every iteration, and the program memory for "
           "them: expected a limit of iterations (WhileOptions::maximum_iterations)");
  for (const std::size_t i : kept->second)
    loop.kept[i] = loop.add(build_.constant(0.0, rows_of(loop.start[i].type, most)));
  if (flow.random) loop.shifts = loop.add(build_.integer(0, rows_of(count_type(), most)));
  return loop;
}

// The frame of a body for arguments of the loop's state.
std::vector<Value> GraphLowering::bind_state(const LoopState& loop, std::span<const Value> state) {
  std::vector<Value> frame = loop.inputs;
  std::copy_n(state.begin(), loop.flow().carried, frame.begin());
  for (std::size_t i = 0; i < loop.written.size(); ++i)
    variables_.at(key_of(*loop.written[i])) = state[loop.flow().carried + i];
  for (const auto& [counter, place] : loop.advances) set_advance(*counter, state[place]);
  if (loop.shift) scope_.shift = state[*loop.shift];
  return frame;
}

Value GraphLowering::lower_condition(const LoopState& loop, std::span<const Value> state) {
  const Value holds = lower_body(loop.flow().bodies[0], bind_state(loop, state), {}).front();
  if (!loop.iterations) return holds;
  const Value limit =
      build_.integer(static_cast<std::uint64_t>(loop.flow().maximum_iterations), index_type());
  return build_.binary("and", holds, build_.compare("LT", state[*loop.iterations], limit));
}

// The state after an iteration.
std::vector<Value> GraphLowering::lower_iteration(const LoopState& loop,
                                                  std::span<const Value> state) {
  std::vector<Value> next(state.begin(), state.end());
  const std::vector<Value> frame = bind_state(loop, state);
  if (loop.shift) scope_.shift = build_.add(*scope_.shift, random_count(loop.node, 0));
  for (const auto& [i, rows] : loop.kept)
    next[rows] = build_.with_row(state[rows], state[*loop.iterations], state[i]);
  if (loop.shifts)
    next[*loop.shifts] =
        build_.with_row(state[*loop.shifts], state[*loop.iterations], *scope_.shift);
  const std::vector<Value> results = lower_body(loop.flow().bodies[1], frame, loop.written);
  std::copy(results.begin(), results.end(), next.begin());
  for (const auto& [counter, place] : loop.advances) next[place] = advance_of(*counter);
  if (loop.shift) next[*loop.shift] = build_.add(*scope_.shift, random_count(loop.node, 1));
  if (loop.iterations)
    next[*loop.iterations] = build_.add(state[*loop.iterations], build_.integer(1, index_type()));
  return next;
}

// Takes what the loop leaves to later nodes.
void GraphLowering::end_loop(const LoopState& loop, const std::vector<Value>& results) {
  take_results(loop.node, results, loop.written);
  for (const auto& [counter, place] : loop.advances) set_advance(*counter, results[place]);
  if (loop.shift) {
    // The condition that ended the loop has run; at the limit it has not.
    Value last = random_count(loop.node, 0);
    if (loop.iterations) {
      const Value limit =
          build_.integer(static_cast<std::uint64_t>(loop.flow().maximum_iterations), index_type());
      last = build_.select(build_.compare("LT", results[*loop.iterations], limit), last,
                           build_.integer(0, count_type()));
    }
    const Value end = build_.add(results[*loop.shift], last);
    set_random_count(loop.node, build_.subtract(end, loop.start[*loop.shift]));
  }
  if (!kept_.contains(&loop.node)) return;
  Record& record = scope_.records[&loop.node];
  record.iterations = results[*loop.iterations];
  for (const auto& [i, rows] : loop.kept) record.kept.insert_or_assign(i, results[rows]);
  if (loop.shifts) record.shifts = results[*loop.shifts];
}

void GraphLowering::lower_while(const Node& node, const std::vector<Value>& inputs,
                                const Handles& written) {
  const LoopState loop = start_loop(node, inputs, written);
  const std::vector<Type> types = types_of(loop.start);
  std::vector<Value> next;
  const std::vector<std::string> regions = {
      region_of(types,
                [&](std::span<const Value> state) {
                  return std::vector<Value>{lower_condition(loop, state)};
                }),
      region_of(types,
                [&](std::span<const Value> state) { return next = lower_iteration(loop, state); })};
  for (std::size_t i = 0; i < loop.values(); ++i)
    if (!(types[i].shape == next[i].shape()))
      fail<InvalidArgumentError>(
          "[{}] loop variable {} enters the loop with shape {}, but has shape {} after one "
          "iteration",
          node.op->name, i, types[i].shape.to_string(), next[i].shape().to_string());
  end_loop(loop, build_.add("while", loop.start, regions, "", types));
}

// Goes through the rows that the loop has kept, from the last to the first.
void GraphLowering::lower_while_gradient(const Node& node, const std::vector<Value>& inputs) {
  const ControlFlow& flow = *node.control;
  const Record record = record_of(node);
  std::vector<Value> start(inputs.begin(),
                           inputs.begin() + static_cast<std::ptrdiff_t>(flow.carried));
  start.push_back(*record.iterations);
  const auto is_left = [&](std::span<const Value> state) -> std::vector<Value> {
    return {build_.compare("GT", state.back(), build_.integer(0, index_type()))};
  };
  const auto iteration = [&](std::span<const Value> state) {
    const Value row = build_.subtract(state.back(), build_.integer(1, index_type()));
    std::vector<Value> frame(flow.elements, row);  // in the place of those that nothing reads
    for (const auto& [i, rows] : record.kept) frame[i] = build_.row(rows, row);
    frame.insert(frame.end(), state.begin(), state.end() - 1);
    frame.insert(frame.end(), inputs.begin() + static_cast<std::ptrdiff_t>(flow.carried),
                 inputs.end());
    if (record.shifts) scope_.shift = build_.row(*record.shifts, row);
    std::vector<Value> results = lower_body(flow.bodies[0], frame, {});
    results.push_back(row);
    return results;
  };
  const std::vector<Type> types = types_of(start);
  const std::vector<std::string> regions = {region_of(types, is_left), region_of(types, iteration)};
  take_results(node, build_.add("while", start, regions, "", types), {});
}

}  // namespace tandem::stablehlo
