#include "tandem/explain.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "comm/reducer.h"
#include "core/status.h"
#include "graph/memory_plan.h"
#include "graph/passes/passes.h"
#include "graph/structural_ops.h"
#include "runtime/generator.h"
#include "runtime/placement.h"
#include "runtime/placer.h"
#include "runtime/replica_context.h"
#include "train/step.h"

namespace tandem {
namespace {

using CollectiveEntry = Explanation::CollectiveEntry;

std::int64_t bytes_of(const TensorSpec& spec) {
  return spec.shape.num_elements() * static_cast<std::int64_t>(size_of(spec.dtype));
}

// A replica of a step that is traced alone: what it would exchange with the others is written down,
// and its own values stand for the results, which have the same shapes.
class LoneReplica final : public ReplicaContext {
 public:
  struct Share {
    int id, replicas;
    std::int64_t offset, total;  // of the global batch
  };
  LoneReplica(const Share& share, std::vector<CollectiveEntry>& collectives)
      : collectives_(collectives) {
    replica_id_ = share.id;
    num_replicas_ = share.replicas;
    example_offset_ = share.offset;
    global_examples_ = share.total;
  }

  std::vector<Tensor> all_reduce_sum(std::span<const Tensor> tensors) override {
    std::int64_t bytes = 0;
    for (const Tensor& tensor : tensors) bytes += bytes_of(impl_of(tensor));
    note("all_reduce", bytes);
    return {tensors.begin(), tensors.end()};
  }
  Tensor broadcast(const Tensor& tensor) override {
    note("broadcast", bytes_of(impl_of(tensor)));
    return tensor;
  }
  std::unique_ptr<GradientReduction> start_reduction(
      const std::vector<Variable>& variables) override {
    return std::make_unique<Reduction>(*this, variables);
  }
  void run_for_idle_replicas(const std::function<void()>&) override {}

 private:
  // Buckets as the Reducer forms them.
  class Reduction final : public GradientReduction {
   public:
    Reduction(LoneReplica& replica, const std::vector<Variable>& variables)
        : replica_(replica), variables_(variables), gradients_(variables.size()) {}
    void ready(std::size_t index, Tensor gradient) override {
      gradients_[index] = std::move(gradient);
    }
    std::vector<Tensor> finish() override {
      std::vector<GradientInfo> infos;
      for (const Variable& variable : variables_)
        infos.push_back({variable.shape().num_elements(), variable.dtype()});
      for (const auto& bucket : assign_buckets(infos, {})) {
        std::int64_t bytes = 0;
        std::vector<std::string> names;
        for (std::size_t index : bucket) {
          if (!gradients_[index].defined()) continue;
          bytes += bytes_of(impl_of(gradients_[index]));
          names.push_back(variables_[index].name());
        }
        if (!names.empty()) replica_.note("all_reduce", bytes, std::move(names));
      }
      return std::move(gradients_);
    }

   private:
    LoneReplica& replica_;
    std::vector<Variable> variables_;
    std::vector<Tensor> gradients_;
  };

  // Every replica calls the same ones: the first one's are enough.
  void note(const char* type, std::int64_t bytes, std::vector<std::string> variables = {}) {
    if (replica_id_ == 0)
      collectives_.push_back({type, bytes, num_replicas_, std::move(variables)});
  }

  std::vector<CollectiveEntry>& collectives_;
};

// Calls the step where it is, on behalf of one replica of several.
class InPlaceRunner final : public ReplicaRunner {
 public:
  explicit InPlaceRunner(int replicas) : replicas_(replicas) {}
  int num_replicas() const override { return replicas_; }
  bool owns(const Variable&) const override { return true; }
  std::vector<std::vector<Tensor>> run(const data::Example& batch, const Step& step) override {
    return {step(batch)};
  }

 private:
  int replicas_;
};

// Every replica runs the same step on its own device and its own part of the batch, so each is
// traced alone; what they exchange is told apart.
class Explainer {
 public:
  Explainer(const Model& model, const data::Example& batch)
      : impl_(compiled_impl_of(model, "explain")), batch_(batch) {
    check_batch(batch, impl_.num_inputs + 1, impl_.num_inputs + 2, "explain");
    make_variables();
  }

  Explanation run() {
    const int replicas = impl_.runner->num_replicas();
    const std::int64_t examples = batch_[0].dim(0);
    result_.batch = examples;
    result_.num_replicas = replicas;
    list_variables(impl_.layer.variables(), false);
    list_variables(impl_.optimizer.variables(), true);
    std::int64_t offset = 0;
    for (int replica = 0; replica < replicas; ++replica) {
      // As evenly as strategies split a batch: the larger parts first.
      const std::int64_t count = examples / replicas + (replica < examples % replicas ? 1 : 0);
      if (count > 0) explain_replica({replica, replicas, offset, examples}, count);
      offset += count;
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
      const VariableCreatorScope creator(impl_.creator);
      impl_.build(std::move(shapes));
    }
    const VariableCreatorScope creator(impl_.creator);
    impl_.optimizer.build(impl_.layer.trainable_variables());
  }

  Explanation::DeviceEntry& entry_of(const Device& device) {
    for (auto& entry : result_.devices)
      if (entry.device == device.full_name()) return entry;
    auto& entry = result_.devices.emplace_back();
    entry.device = device.full_name();
    entry.limit = const_cast<Device&>(device).allocator().stats().bytes_limit;
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
      for (const auto& copy : impl.copies()) {
        const Device& device = impl_of(copy.value).device();
        entry.devices.push_back(device.full_name());
        auto& total = entry_of(device);
        (optimizer ? total.optimizer : total.weights) += entry.bytes;
        if (variable.trainable()) trainable_.insert(&copy);
      }
      result_.variables.push_back(std::move(entry));
    }
  }

  // Where a replica's variables are is where it runs.
  Device& device_of(int replica) const {
    const auto variables = impl_.layer.variables();
    if (variables.empty()) return place_constant("explain");
    const auto& copies = variables.front().impl().copies();
    const std::size_t copy = copies.size() > 1 ? static_cast<std::size_t>(replica) : 0;
    return impl_of(copies[copy].value).device();
  }

  void explain_replica(const LoneReplica::Share& share, std::int64_t examples) {
    Device& device = device_of(share.id);
    const auto graph = make_ref<GraphImpl>();
    LowerOptions options{.all_updates = true};
    trace(*graph, share, examples, device, options);
    options.devices = place_graph(*graph);
    Block block = lower(*graph, options);
    optimize(block);
    const MemoryPlan plan = plan_memory(block);
    read_operations(block, *graph, share.id, device);
    read_memory(block, plan);
  }

  void trace(GraphImpl& graph, const LoneReplica::Share& share, std::int64_t examples,
             Device& device, LowerOptions& options) {
    const BuildingScope building_scope(&graph);
    Generator generator({.seed = 0, .draws = 0});
    const GeneratorScope draws(generator);
    std::optional<OnDevice> on;
    if (&device != &place_constant("explain")) on.emplace(device);
    LoneReplica context(share, result_.collectives);
    const ReplicaContextScope context_scope(share.replicas > 1 ? &context : nullptr);
    data::Example inputs;
    for (const Tensor& component : batch_) {
      TensorSpec spec = impl_of(component);
      spec.shape.set(0, examples);
      Node& node = graph.add(kPlaceholder, SpecAttrs{spec.dtype, spec.shape}, {},
                             {.name = fmt::format("args_{}", options.feeds.size())});
      options.feeds.push_back({&node, 0});
      options.feed_devices.push_back(&device);
      inputs.push_back(graph.tensor(node));
      entry_of(device).inputs += bytes_of(spec);
      options.feed_specs.push_back(std::move(spec));
    }
    Model::Impl alone = impl_;
    alone.runner = std::make_shared<InPlaceRunner>(share.replicas);
    Stepper(alone, "explain").train(inputs);
  }

  void read_operations(const Block& block, const GraphImpl& graph, int replica,
                       const Device& device) {
    for (const auto& operation : block.operations) {
      Explanation::OperationEntry entry{.name = operation->name,
                                        .type = std::string(operation->op->name),
                                        .device = operation->device->full_name(),
                                        .replica = replica};
      for (const Value* output : operation->outputs) {
        entry.outputs.push_back(output->spec.shape);
        entry.output_bytes += static_cast<std::int64_t>(output->bytes());
      }
      if (const std::string reason = fallback_reason(*operation, graph, device); !reason.empty())
        result_.fallbacks.push_back({entry.name, entry.type, entry.device, reason});
      result_.operations.push_back(std::move(entry));
    }
  }

  // Why an operation of a replica on `device` is on the CPU; empty where it is meant to be there.
  static std::string fallback_reason(const Operation& operation, const GraphImpl& graph,
                                     const Device& device) {
    if (operation.device->type() != DeviceType::kCpu || operation.op == &kCopy) return {};
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
        return fmt::format("it changes '{}', which is there", root.resource->name());
    if (requested == "GPU" && device.type() == DeviceType::kCpu)
      return fmt::format("there is no device '{}'", node->requested_text);
    return "it follows its inputs, which are there";
  }

  void read_memory(const Block& block, const MemoryPlan& plan) {
    std::unordered_set<const Value*> constants;
    std::unordered_set<const Value*> gradients;
    for (const auto& operation : block.operations) {
      bool updates = false;  // by a gradient
      for (std::size_t i = 0; i < operation->inputs.size(); ++i) {
        const Value& root = operation->inputs[i]->root();
        if (root.kind == Value::Kind::kConstant) constants.insert(&root);
        updates = updates || (operation->mutates(i) && root.resource &&
                              trainable_.count(root.resource->identity()) > 0);
      }
      if (!updates) continue;
      for (const Value* input : operation->inputs)
        if (plan.places.count(&input->root()) > 0) gradients.insert(&input->root());
    }
    for (const Value* constant : constants)
      entry_of(*constant->device).constants += static_cast<std::int64_t>(constant->bytes());
    std::unordered_map<const Device*, std::int64_t> gradient_bytes;
    for (const Value* gradient : gradients)
      gradient_bytes[gradient->device] += static_cast<std::int64_t>(plan.places.at(gradient).bytes);
    for (const auto& [device, bytes] : plan.arena_bytes) {
      const auto arena = static_cast<std::int64_t>(bytes);
      // Gradients that are used up one by one may share memory with each other.
      const std::int64_t of_gradients = std::min(gradient_bytes[device], arena);
      auto& entry = entry_of(*device);
      entry.gradients += of_gradients;
      entry.activations += arena - of_gradients;
    }
  }

  Model::Impl& impl_;
  const data::Example& batch_;
  Explanation result_;
  std::unordered_set<const void*> trainable_;  // Resource::identity() of their copies
};

}  // namespace

Explanation explain(const Model& model, const data::Example& batch) {
  return Explainer(model, batch).run();
}

}  // namespace tandem
