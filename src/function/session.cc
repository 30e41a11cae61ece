// Session: places a graph, builds a program per combination of feeds and fetches, and runs it.

#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <shared_mutex>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "core/joined.h"
#include "core/log.h"
#include "core/mutex.h"
#include "core/status.h"
#include "device/device_manager.h"
#include "function/fetch.h"
#include "function/placer.h"
#include "graph/control_flow.h"
#include "graph/node.h"
#include "graph/program_cache.h"
#include "graph/program_pool.h"
#include "graph/structural_ops.h"
#include "runtime/generator.h"
#include "runtime/variable_impl.h"
#include "tandem/graph.h"

namespace tandem {
namespace {

// The memory of one variable of a graph in one session.
class SessionVariable final : public Resource {
 public:
  SessionVariable(const Node& handle, DeviceImpl& device) : handle_(handle), device_(device) {}

  const void* identity() const override { return this; }
  const std::string& name() const override { return handle_.name; }
  DeviceImpl& device() const override { return device_; }
  const TensorType& spec() const override { return handle_.outputs[0]; }

  Tensor value() override {
    if (!initialized_)
      fail<FailedPreconditionError>(
          "Attempting to use uninitialized value {}. Run graph.initializer() first, or make the "
          "session with SessionOptions{{.initialize_variables = true}}.",
          handle_.name);
    return value_;
  }

  // May be called before the first assignment, which overwrites all elements.
  Tensor writable() override {
    if (!value_.defined()) {
      const Scoped tag(memory_tag, MemoryTag::kWeights);
      value_ = make_tensor(device_, spec().shape, spec().dtype, handle_.op->name);
    }
    return value_;
  }

  bool initialized() const { return initialized_; }
  void set_initialized() { initialized_ = true; }
  const Node& handle() const { return handle_; }

 private:
  const Node& handle_;
  DeviceImpl& device_;
  Tensor value_;
  bool initialized_ = false;
};

// The state of a session between runs: the elements of its variables.
class SessionState {
 public:
  // The variable's memory, created on `device` at the first call.
  RefPtr<SessionVariable> variable(const Node& handle, DeviceImpl& device) {
    RefPtr<SessionVariable>& variable = variables_[&handle];
    if (!variable) variable = make_ref<SessionVariable>(handle, device);
    return variable;
  }
  // The value of an int64 scalar, either a variable of the session or a captured one.
  std::int64_t count(const Node& handle) const {
    Resource& resource = handle.resource ? *handle.resource : *variables_.at(&handle);
    std::int64_t count = 0;
    to_host(resource.value(), &count);
    return count;
  }
  void clear() { variables_.clear(); }

 private:
  std::unordered_map<const Node*, RefPtr<SessionVariable>> variables_;
};

// The arguments of one run: feeds, tensors to fetch and nodes to run.
struct RunRequest {
  std::vector<Node::Input> feeds;
  std::vector<Tensor> values;  // of the feeds
  std::vector<Node::Input> fetches;
  std::vector<const Node*> targets;

  // Equal for requests that can use one program.
  std::string key() const {
    std::string key;
    ByteWriter out(key);
    out.add(feeds.size(), fetches.size());
    for (std::size_t i = 0; i < feeds.size(); ++i) {
      out.add(feeds[i].node->id, feeds[i].output);
      append_to_key(key, values[i]);
    }
    for (const Node::Input& fetch : fetches) out.add(fetch.node->id, fetch.output);
    for (const Node* target : targets) out.add(target->id);
    return key;
  }

  // For messages: the name of the first fetch or target.
  std::string describe() const {
    const Node* node = !fetches.empty()   ? fetches.front().node
                       : !targets.empty() ? targets.front()
                                          : nullptr;
    return fmt::format("Session.run of '{}'", node ? node->name : "");
  }
};

// A program, and its requirements and effects on variables.
struct PreparedRun {
  std::unique_ptr<ProgramPool> programs;
  std::vector<RefPtr<SessionVariable>> reads;    // must be initialised before a run
  std::vector<RefPtr<SessionVariable>> assigns;  // initialised by a run
  std::uint64_t random_count = 0;                // random operations per run
};

class RunPreparation {
 public:
  RunPreparation(GraphImpl& graph, SessionState& state, const std::vector<DeviceImpl*>& placed,
                 const PlacerOptions& placer, ProgramOptions options)
      : graph_(graph),
        state_(state),
        placed_(placed),
        placer_(placer),
        program_options_(std::move(options)) {}

  // Adds the requirements and effects of the program to `prepared`.
  std::unique_ptr<Program> program(const RunRequest& request, PreparedRun& prepared) {
    prepared_ = &prepared;
    LowerOptions options{.feeds = request.feeds, .fetches = request.fetches};
    for (const Tensor& value : request.values) options.add_given(value);
    options.devices = placed_;
    // Loops over elements call this later, too.
    options.devices_of = [placed = placed_, placer = placer_](const GraphImpl& body) {
      return devices_of(body, placed, placer);
    };
    options.targets = request.targets;
    options.resource_of = [state = &state_,
                           placed = placed_](const Node& handle) -> RefPtr<Resource> {
      return state->variable(handle, *placed[static_cast<std::size_t>(handle.id)]);
    };
    Block block = lower(graph_, options);
    number_random_operations(block);
    set_count_updates(block, graph_, state_);
    for (const auto& operation : block.operations) {
      note_variables(*operation);
    }
    return std::make_unique<Program>(std::move(block), program_options_);
  }

 private:
  // Variables of bodies are on the devices of the same variables of this graph.
  static std::vector<DeviceImpl*> devices_of(const GraphImpl& body,
                                             const std::vector<DeviceImpl*>& placed,
                                             const PlacerOptions& placer) {
    PlacerOptions options = placer;
    options.assigned.assign(body.nodes().size(), nullptr);
    for (const auto& node : body.nodes()) {
      const Node& handle = outermost(*node);
      if (&handle != node.get() && !handle.resource)
        options.assigned[static_cast<std::size_t>(node->id)] =
            placed[static_cast<std::size_t>(handle.id)];
    }
    return place_graph(body, options);
  }

  // The n-th random operation of a run takes the n-th key of the thread's generator, as it would if
  // the operations of the run were called eagerly. Others of the graph do not count.
  void number_random_operations(Block& block) {
    std::map<std::uint64_t, std::uint64_t> numbers;
    std::vector<std::pair<BlockOperation*, RandomKey>> random;
    for (const auto& operation : block.operations) {
      if (!operation->op->exchange_key) continue;
      const auto copy = operation->op->attrs().copy(operation->attrs.get());
      const RandomKey key = operation->op->exchange_key(const_cast<void*>(copy.get()), {});
      random.emplace_back(operation.get(), key);
      numbers.emplace(key.number, 0);
    }
    for (auto& [traced, number] : numbers) number = prepared_->random_count++;
    for (const auto& [operation, key] : random)
      operation->attr_update = std::make_shared<const AttrUpdate>(
          [op = operation->op, number = numbers.at(key.number), stream = key.stream,
           before = operation->random_before](void* attrs, std::int64_t) {
            const random::GeneratorState now = Generator::current().state();
            const std::uint64_t earlier = before ? before->total() : 0;
            op->exchange_key(attrs, {now.seed, now.offset + number + earlier, stream});
          });
    for (const auto& operation : block.operations)
      if (operation->control)
        operation->control->offset_before = static_cast<std::uint64_t>(std::distance(
            numbers.begin(), numbers.lower_bound(operation->control->flow->offset_before)));
  }

  // A variable must be initialised unless its first use is an assignment.
  void note_variables(const BlockOperation& operation) {
    for (std::size_t i = 0; i < operation.inputs.size(); ++i) {
      const Value& root = operation.inputs[i]->root();
      if (root.kind != Value::Kind::kVariable) continue;
      auto* variable = dynamic_cast<SessionVariable*>(root.resource.get());
      if (!variable || !seen_.insert(variable).second) continue;
      if (operation.region)
        fail<UnimplementedError>(
            "[Session] variable '{}' is used on {}, which runs compiled programs: sessions do not "
            "support it; use a function instead",
            variable->name(), operation.device->full_name());
      const bool assigned = operation.op == &kAssignVariable && i == 0;
      (assigned ? prepared_->assigns : prepared_->reads).emplace_back(variable);
    }
  }

  // Sets the updates of attributes that depend on a counter. The value is that of the start of the
  // run, or of the end of the previous control flow, plus the increments since.
  static void set_count_updates(Block& block, const GraphImpl& graph, SessionState& state) {
    std::unordered_map<const Node*, std::int64_t> raised;
    // Equal updates share one object, so that group_updates() can compare them.
    std::map<std::pair<const CountedAttrUpdate*, std::int64_t>, std::shared_ptr<const AttrUpdate>>
        made;
    for (const auto& operation : block.operations) {
      if (operation->control) {
        set_count_updates(*operation->control, state);
        raised.clear();
        continue;
      }
      const Node* node = graph.find(operation->name);
      if (!node || node->op != operation->op) continue;
      if (node->op == &kAssignVariable) ++raised[&outermost(*node->inputs[0].node)];
      if (!node->counted) continue;
      const Node& counter = outermost(*node->counted->counter);
      const std::int64_t earlier = raised[&counter];
      auto& attr_update = made[{node->counted.get(), earlier}];
      if (!attr_update)
        attr_update = std::make_shared<const AttrUpdate>(
            [&state, &counter, counted = node->counted, earlier](void* attrs, std::int64_t more) {
              counted->update(attrs, state.count(counter) + earlier + more);
            });
      operation->attr_update = attr_update;
    }
  }
  static void set_count_updates(Control& control, SessionState& state) {
    const auto& bodies = control.flow->bodies;
    for (std::size_t i = 0; i < control.bodies.size(); ++i)
      set_count_updates(control.bodies[i].block, *bodies[i].graph, state);
    if (!control.body_for) return;
    control.body_for = [&state, graph = bodies.back().graph,
                        lowered = std::move(control.body_for)](const auto& elements) {
      BodyBlock body = lowered(elements);
      set_count_updates(body.block, *graph, state);
      return body;
    };
  }

  GraphImpl& graph_;
  SessionState& state_;
  const std::vector<DeviceImpl*>& placed_;
  const PlacerOptions& placer_;
  const ProgramOptions program_options_;
  std::unordered_set<const SessionVariable*> seen_;
  PreparedRun* prepared_ = nullptr;
};

void log_mapping() {
  std::string text = "Device mapping:";
  const std::vector<std::string> lines = DeviceManager::get().describe_mapping();
  if (lines.empty()) text += " no known devices.";
  for (const std::string& line : lines) text += "\n" + line;
  fmt::print("{}\n", text);
  logging::info("{}", text);
}

}  // namespace

struct Session::Impl {
  Graph handle;
  GraphImpl& graph;
  SessionOptions options;
  // Held shared by runs that may happen at the same time, which do not hold `mutex`.
  SharedMutex running{"Session"};
  Mutex mutex{"Session"};  // locked first; guards the following
  bool closed = false;
  std::vector<DeviceImpl*> placed;
  SessionState state;
  const std::shared_ptr<ProgramMemory> memory = ProgramMemory::make();
  // One per combination of feeds, their specs and devices, fetches and targets.
  ProgramCache<std::shared_ptr<PreparedRun>> programs;

  Impl(const Graph& of, SessionOptions session_options)
      : handle(of), graph(of.impl()), options(std::move(session_options)) {
    config::set_gpu_options(options.gpu_options);
    if (!options.device_count.empty()) config::set_device_count(options.device_count);
    if (options.intra_op_parallelism_threads > 0)
      config::set_intra_op_parallelism_threads(options.intra_op_parallelism_threads);
    DeviceManager::get().initialize("Session");
    if (options.log_device_placement) log_mapping();
  }

  // `lock`: of `mutex`. Releases it while the program runs, if other runs may happen meanwhile.
  std::vector<Tensor> run(const RunRequest& request, std::unique_lock<Mutex>& lock) {
    const std::shared_ptr<PreparedRun> prepared = prepare(request);
    if (!prepared->programs->concurrent() || prepared->random_count > 0)
      return run_alone(*prepared, request);
    const std::shared_lock beside(running);
    const auto program = prepared->programs->take([&] {
      PreparedRun known;  // as `prepared`
      return make_program(request, known);
    });
    lock.unlock();
    return program->run(request.values);
  }

  std::vector<Tensor> run_alone(PreparedRun& prepared, const RunRequest& request) {
    const std::unique_lock alone(running);
    std::unique_lock<Mutex> random_lock;
    if (graph.last_random) {
      random_lock = std::unique_lock(graph.random_mutex);
      graph.last_random->reset();
    }
    std::vector<Tensor> fetched = prepared.programs->first().run(request.values);
    for (const auto& variable : prepared.assigns) variable->set_initialized();
    random::GeneratorState now = Generator::current().state();
    now.offset += prepared.random_count + (graph.last_random ? graph.last_random->total() : 0);
    Generator::current().set_state(now);
    return fetched;
  }

  // The program of the request, whose variables have values.
  std::shared_ptr<PreparedRun> prepare(const RunRequest& request) {
    std::shared_ptr<PreparedRun> prepared = find_or_make(request);
    initialize(*prepared);
    require_values(*prepared);
    return prepared;
  }

  std::shared_ptr<PreparedRun> find_or_make(const RunRequest& request) {
    std::string key = request.key();
    if (const auto* found = programs.find(key)) return *found;
    auto prepared = std::make_shared<PreparedRun>();
    prepared->programs = std::make_unique<ProgramPool>(make_program(request, *prepared));
    programs.put(std::move(key), prepared);
    return prepared;
  }

  std::unique_ptr<Program> make_program(const RunRequest& request, PreparedRun& prepared) {
    const PlacerOptions placer{.allow_soft_placement = options.allow_soft_placement,
                               .log_device_placement = options.log_device_placement,
                               .assigned = placed};
    if (placed.size() < graph.nodes().size()) placed = place_graph(graph, placer);
    const ProgramOptions program{.name = request.describe(), .memory = memory};
    return RunPreparation(graph, state, placed, placer, program).program(request, prepared);
  }

  // Runs the initializers of variables that `prepared` needs, recursively.
  void initialize(const PreparedRun& prepared) {
    if (!options.initialize_variables) return;
    RunRequest initializers;
    for (const auto& variable : prepared.reads)
      if (!variable->initialized() && variable->handle().initializer)
        initializers.targets.push_back(variable->handle().initializer);
    if (initializers.targets.empty()) return;
    std::sort(initializers.targets.begin(), initializers.targets.end(),
              [](const Node* a, const Node* b) { return a->id < b->id; });
    run_alone(*prepare(initializers), initializers);
  }

  static void require_values(const PreparedRun& prepared) {
    std::vector<std::string> missing;
    for (const auto& variable : prepared.reads)
      if (!variable->initialized() && !variable->handle().initializer)
        missing.push_back(variable->name());
    if (!missing.empty()) fail_without_values(missing);
    for (const auto& variable : prepared.reads) static_cast<void>(variable->value());
  }

  // Only deserialised graphs have variables without an initializer.
  [[noreturn]] static void fail_without_values(const std::vector<std::string>& missing) {
    fail<FailedPreconditionError>(
        "Attempting to use uninitialized value {}. The graph was read from bytes that hold {} "
        "variable{} by name only, without values: '{}'. Serialize it in the program that has them "
        "with SerializeOptions{{.freeze_variables = true}}.",
        missing.front(), missing.size(), missing.size() == 1 ? "" : "s", joined(missing, "', '"));
  }

  // --- fetches and feeds ---

  Node::Input in_graph(const Tensor& tensor, const char* what) const {
    if (!is_symbolic(tensor))
      fail<InvalidArgumentError>(
          "[Session] a {} of shape {} has its elements already; a {} is a "
          "tensor of the session's graph, or its name",
          what, tensor.shape().to_string(), what);
    const Symbol& symbol = symbol_of(tensor);
    if (symbol.node->graph != &graph)
      fail<InvalidArgumentError>("[Session] {} '{}:{}' is not an element of this graph.", what,
                                 symbol.node->name, symbol.output);
    return {symbol.node, symbol.output};
  }

  void add_feed(RunRequest& request, const Feed& feed) const {
    const auto* name = std::get_if<std::string>(&feed.tensor);
    const Node::Input tensor =
        in_graph(name ? handle.tensor(*name) : std::get<Tensor>(feed.tensor), "feed");
    if (tensor.node->op == &kVarHandle)
      fail<InvalidArgumentError>(
          "[Session] '{}' is the memory of a variable; feed what was read of it, or assign to it",
          tensor.node->name);
    if (std::find(request.feeds.begin(), request.feeds.end(), tensor) != request.feeds.end())
      fail<InvalidArgumentError>("[Session] '{}:{}' was fed more than once.", tensor.node->name,
                                 tensor.output);
    if (is_symbolic(feed.value))
      fail<InvalidArgumentError>(
          "[Session] The value of a feed cannot be a symbolic tensor; '{}:{}' was given one.",
          tensor.node->name, tensor.output);
    request.feeds.push_back(tensor);
    request.values.push_back(feed.value);
  }

  // Returns whether the fetch is a tensor.
  bool add_fetch(RunRequest& request, const Fetch& fetch) const {
    if (const auto* operation = std::get_if<Graph::Operation>(&fetch.what())) {
      if (operation->node().graph != &graph)
        fail<InvalidArgumentError>("[Session] operation '{}' is not an element of this graph.",
                                   operation->name());
      request.targets.push_back(&operation->node());
      return false;
    }
    request.fetches.push_back(in_graph(tensor_of(handle, fetch), "fetch"));
    return true;
  }
};

Session::Session(const Graph& graph, SessionOptions options)
    : impl_(std::make_unique<Impl>(graph, std::move(options))) {}
Session::~Session() = default;

Fetch::Fetch(Tensor tensor) : what_(std::move(tensor)) {}
Fetch::Fetch(const Variable& variable) : what_(variable) {}
Fetch::Fetch(Graph::Operation operation) : what_(std::move(operation)) {}
Fetch::Fetch(std::string name) : what_(std::move(name)) {}
Fetch::Fetch(const char* name) : what_(std::string(name)) {}

Feed::Feed(Tensor tensor_, Tensor value_) : tensor(std::move(tensor_)), value(std::move(value_)) {}
Feed::Feed(std::string name, Tensor value_) : tensor(std::move(name)), value(std::move(value_)) {}
Feed::Feed(const char* name, Tensor value_) : Feed(std::string(name), std::move(value_)) {}

std::vector<Tensor> Session::run(const std::vector<Fetch>& fetches) {
  return run(Feeds(), fetches);
}

Tensor Session::run_one(const Feeds& feeds, const Fetch& fetch) {
  return run(feeds, std::vector<Fetch>{fetch}).front();
}

std::vector<Tensor> Session::run(const Feeds& feeds, const std::vector<Fetch>& fetches) {
  Impl& session = *impl_;
  std::unique_lock lock(session.mutex);
  if (session.closed) throw RuntimeError("Attempted to use a closed Session.");
  if (session.graph.nodes().empty())
    throw RuntimeError(
        "The Session graph is empty.  Add operations to the graph before calling run().");
  const Scoped at_once(context.graph, nullptr);
  RunRequest request;
  for (const Feed& feed : feeds) session.add_feed(request, feed);
  std::vector<bool> is_tensor;
  for (const Fetch& fetch : fetches) is_tensor.push_back(session.add_fetch(request, fetch));

  std::vector<Tensor> fetched = session.run(request, lock);
  std::vector<Tensor> results;
  auto next = fetched.begin();
  for (const bool tensor : is_tensor) results.push_back(tensor ? std::move(*next++) : Tensor());
  return results;
}

void Session::close() {
  const std::lock_guard lock(impl_->mutex);
  const std::unique_lock alone(impl_->running);
  impl_->closed = true;
  impl_->programs = {};
  impl_->state.clear();
}

}  // namespace tandem
