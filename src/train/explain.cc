#include "tandem/explain.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "core/status.h"
#include "function/placer.h"
#include "graph/collective.h"
#include "graph/memory_plan.h"
#include "graph/passes/passes.h"
#include "graph/region_step.h"
#include "graph/schedule_collectives.h"
#include "graph/stablehlo/module_text.h"
#include "graph/structural_ops.h"
#include "op/find_kernel.h"
#include "runtime/generator.h"
#include "runtime/placement.h"
#include "runtime/variable_impl.h"
#include "runtime/variable_name.h"
#include "train/batch_trainer.h"

namespace tandem {
namespace {

std::int64_t bytes_of(const TensorType& spec) {
  return spec.shape.num_elements() * static_cast<std::int64_t>(size_of(spec.dtype));
}

class Explainer {
 public:
  Explainer(const Model& model, const data::Example& batch)
      : model_(model), impl_(compiled_impl_of(model, "explain")), batch_(batch) {
    check_training_batch(impl_, batch, "explain");
    make_variables();
  }

  Explanation run() {
    result_.batch = batch_[0].size_word(0);
    result_.num_replicas = impl_.runner->num_local_replicas();
    for (int replica = 0; replica < result_.num_replicas; ++replica)
      result_.replica_devices.push_back(device_of(replica).full_name());
    list_variables(impl_.layer.variables(), false);
    list_variables(impl_.optimizer.variables(), true);

    const auto graph = make_ref<GraphImpl>();
    LowerOptions options{.all_updates = true};
    trace(*graph, options);
    options.devices = place_graph(*graph);
    options.devices_of = [](const GraphImpl& body) { return place_graph(body); };
    Block block = lower(*graph, options);
    for (const RefPtr<Resource>& copy : keep_casts(block))
      entry_of(copy->device()).weights += bytes_of(copy->spec());
    for (const auto& [device, arena] : read(block, *graph)) {
      auto& entry = entry_of(*device);
      entry.gradients += arena.gradients;
      entry.activations += arena.bytes - arena.gradients;
    }
    return std::move(result_);
  }

 private:
  void make_variables() const {
    if (!impl_.layer.base().built()) {
      std::vector<Shape> shapes;
      for (std::size_t i = 0; i < impl_.num_inputs; ++i) {
        shapes.push_back(batch_[i].shape());
        shapes.back().set(0, -1);
      }
      const Scoped creator(context.creator, impl_.creator);
      impl_.build(std::move(shapes));
    }
    const Scoped creator(context.creator, impl_.creator);
    impl_.optimizer.build(impl_.layer.trainable_variables());
  }

  Explanation::DeviceEntry& entry_of(const DeviceImpl& device) {
    for (auto& entry : result_.devices)
      if (entry.device == device.full_name()) return entry;
    auto& entry = result_.devices.emplace_back();
    entry.device = device.full_name();
    entry.limit = const_cast<DeviceImpl&>(device).allocator().stats().bytes_limit;
    return entry;
  }

  void list_variables(const std::vector<Variable>& variables, bool optimizer) {
    for (const Variable& variable : variables) {
      VariableImpl& impl = variable.impl();
      Explanation::VariableEntry entry{.name = variable.name(),
                                       .dtype = impl.spec().dtype,
                                       .shape = impl.spec().shape,
                                       .optimizer = optimizer,
                                       .bytes = bytes_of(impl.spec())};
      const VariableStorage& storage = impl.storage();
      for (std::size_t place = 0; place < storage.num_places(); ++place) {
        const DeviceImpl& device = storage.home(place);
        entry.devices.push_back(device.full_name());
        auto& total = entry_of(device);
        (optimizer ? total.optimizer : total.weights) += entry.bytes;
        if (variable.trainable()) trainable_.insert(storage.identity(place));
      }
      result_.variables.push_back(std::move(entry));
    }
  }

  // The device of a replica's variables.
  DeviceImpl& device_of(int replica) const {
    const auto variables = impl_.layer.variables();
    if (variables.empty()) return place_constant("explain");
    const VariableStorage& storage = variables.front().impl().storage();
    return storage.device(storage.num_readers() > 1 ? static_cast<std::size_t>(replica) : 0);
  }

  // The same trace that StepProgram makes.
  void trace(GraphImpl& graph, LowerOptions& options) {
    GlobalBatch parts = impl_.runner->split(batch_);
    BatchTrainer trainer(impl_, "explain", model_);
    const Scoped building_scope(context.graph, &graph);
    Generator generator({.seed = 0, .offset = 0});
    const Scoped generator_scope(context.generator, &generator);
    for (std::size_t replica = 0; replica < parts.size(); ++replica)
      for (std::size_t i = 0; i < parts[replica].size(); ++i) {
        Tensor& part = parts[replica][i];
        const TensorImpl& given = impl_of(part);
        entry_of(given.device()).inputs += bytes_of(given);
        Node& node = graph.add(kPlaceholder, SpecAttrs{given.dtype, given.shape}, {},
                               {.name = fmt::format("args_{}", options.feeds.size())});
        options.feeds.push_back({&node, 0});
        options.add_given(part);
        part = graph.tensor(node);
      }
    const auto step = [&](const data::Example& examples) {
      return trainer.train_on_replica(examples);
    };
    for (const std::vector<Tensor>& results : impl_.runner->run(parts, step))
      for (const Tensor& result : results) options.fetches.push_back(graph.input_of(result));
  }

  // The bytes of a device's arena that a block uses.
  struct ArenaBytes {
    std::int64_t bytes = 0, gradients = 0;
  };
  using Arenas = std::unordered_map<const DeviceImpl*, ArenaBytes>;

  // Runs the passes that Program runs.
  Arenas read(Block& block, const GraphImpl& graph) {
    optimize(block);
    schedule_collectives(block);
    const MemoryPlan plan = plan_memory(block);
    read_operations(block, graph);
    Arenas arenas = read_memory(block, plan);
    read_collectives(block, graph);
    Arenas of_bodies;  // bodies run one after the other, so they share memory
    for (const auto& operation : block.operations) {
      if (!operation->control) continue;
      const auto& bodies = operation->control->flow->bodies;
      for (std::size_t i = 0; i < operation->control->bodies.size(); ++i)
        for (const auto& [device, arena] :
             read(operation->control->bodies[i].block, *bodies[i].graph))
          if (ArenaBytes& largest = of_bodies[device]; arena.bytes > largest.bytes) largest = arena;
    }
    for (const auto& [device, arena] : of_bodies) {
      arenas[device].bytes += arena.bytes;
      arenas[device].gradients += arena.gradients;
    }
    return arenas;
  }

  void read_operations(const Block& block, const GraphImpl& graph) {
    const DeviceImpl& device = device_of(0);
    for (const auto& operation : block.operations) {
      if (operation->region) read_program(*operation->region);
      Explanation::OperationEntry entry{.name = operation->name,
                                        .type = std::string(operation->op->name),
                                        .device = operation->device->full_name()};
      for (const Value* output : operation->outputs) {
        entry.outputs.push_back(output->spec.shape);
        entry.output_bytes += static_cast<std::int64_t>(output->bytes());
      }
      if (const std::string reason = fallback_reason(*operation, graph, device); !reason.empty())
        result_.fallbacks.push_back({entry.name, entry.type, entry.device, reason});
      result_.operations.push_back(std::move(entry));
    }
  }

  void read_program(const CompiledRegion& region) {
    Explanation::ProgramEntry entry{
        .name = region.module.name, .devices = {}, .stablehlo = stablehlo::text_of(region.module)};
    for (const DeviceImpl* device : region.nodes->devices)
      entry.devices.push_back(device->full_name());
    const auto compiled = compile_region(region);
    const pjrt::CompiledMemory memory = compiled->memory();
    entry.arguments = memory.arguments;
    entry.outputs = memory.outputs;
    entry.aliased = memory.aliased;
    entry.temporaries = memory.temporaries;
    entry.code = memory.code;
    entry.flops = compiled->flops();
    result_.programs.push_back(std::move(entry));
  }

  // Each collective has one operation per rank's device. Reads only the first rank's.
  void read_collectives(const Block& block, const GraphImpl& graph) {
    for (const auto& operation : block.operations) {
      if (!operation->member || operation->member->rank != 0) continue;
      Explanation::CollectiveEntry entry{.type = std::string(user_name_of(*operation->op))};
      for (const auto& other : block.operations)
        if (other->member && other->member->group == operation->member->group)
          entry.replicas = std::max(entry.replicas, other->member->rank + 1);
      for (const Value* output : operation->outputs)
        entry.bytes += static_cast<std::int64_t>(output->bytes());
      if (const Node* node = graph.find(operation->name))
        entry.variables = updated_by(*node, graph);
      result_.collectives.push_back(std::move(entry));
    }
  }

  // The variables that an operation updates with a result of `node`.
  static std::vector<std::string> updated_by(const Node& node, const GraphImpl& graph) {
    std::vector<std::string> names;
    for (const auto& user : graph.nodes()) {
      if (user->op->mutated_inputs == 0 || user->inputs.empty()) continue;
      const auto from = [&](const Node::Input& input) { return input.node == &node; };
      const Node& target = *user->inputs[0].node;
      if (target.resource && std::any_of(user->inputs.begin(), user->inputs.end(), from))
        names.push_back(target.resource->name());
    }
    return names;
  }

  // Why an operation of a replica on `device` runs on the CPU; empty if it is placed there on
  // purpose.
  static std::string fallback_reason(const BlockOperation& operation, const GraphImpl& graph,
                                     const DeviceImpl& device) {
    if (operation.device->type() != DeviceType::kCpu || operation.op == &kCopy ||
        operation.runs_alone())
      return {};
    const Node* node = graph.find(operation.name);
    const std::string requested = node ? node->requested.type.value_or("") : "";
    if (device.type() == DeviceType::kCpu && requested != "GPU") return {};
    if (requested == "CPU") return {};
    const DeviceBackend backend =
        device.type() == DeviceType::kGpu ? device.backend() : DeviceBackend::kCuda;
    if (find_kernel(*operation.op, backend) == nullptr)
      return fmt::format("{} has no kernel for GPUs", operation.op->name);
    for (std::size_t i = 0; i < operation.inputs.size(); ++i)
      if (const Value& root = operation.inputs[i]->root(); operation.mutates(i) && root.resource)
        return fmt::format("it updates {}, which is on the CPU",
                           quoted_name(root.resource->name(), root.resource->spec()));
    if (requested == "GPU" && device.type() == DeviceType::kCpu)
      return fmt::format("there is no device '{}'", node->requested_text);
    return "its inputs are on the CPU";
  }

  // Memory of the block without its bodies.
  Arenas read_memory(const Block& block, const MemoryPlan& plan) {
    std::unordered_set<const Value*> constants;
    std::unordered_set<const Value*> gradients;
    for (const auto& operation : block.operations) {
      bool updates = false;  // holds a gradient
      for (std::size_t i = 0; i < operation->inputs.size(); ++i) {
        const Value& root = operation->inputs[i]->root();
        if (root.kind == Value::Kind::kConstant) constants.insert(&root);
        updates = updates || (operation->mutates(i) && root.resource &&
                              trainable_.count(root.resource->identity()) > 0);
      }
      if (!updates) continue;
      for (const Value* input : operation->inputs)
        if (plan.allocations.count(&input->root()) > 0) gradients.insert(&input->root());
    }
    for (const Value* constant : constants)
      entry_of(*constant->device).constants += static_cast<std::int64_t>(constant->bytes());
    std::unordered_map<const DeviceImpl*, std::int64_t> gradient_bytes;
    for (const Value* gradient : gradients)
      gradient_bytes[gradient->device] +=
          static_cast<std::int64_t>(plan.allocations.at(gradient).bytes);
    Arenas arenas;
    for (const auto& [device, bytes] : plan.arena_bytes) {
      const auto arena = static_cast<std::int64_t>(bytes);
      // Gradients that are freed one by one may share memory.
      arenas[device] = {arena, std::min(gradient_bytes[device], arena)};
    }
    return arenas;
  }

  const Model& model_;
  Model::Impl& impl_;
  const data::Example& batch_;
  Explanation result_;
  std::unordered_set<const void*> trainable_;  // Resource::identity() of trainable variables
};

}  // namespace

Explanation explain(const Model& model, const data::Example& batch) {
  return Explainer(model, batch).run();
}

}  // namespace tandem
