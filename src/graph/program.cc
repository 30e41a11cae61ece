#include "graph/program.h"

#include <unordered_map>
#include <utility>

#include "core/parallel.h"
#include "core/status.h"
#include "graph/collective.h"
#include "graph/lanes.h"
#include "graph/memory_plan.h"
#include "graph/passes/passes.h"
#include "tensor/tensor_impl.h"

namespace tandem {
namespace {

// The attributes of a step: the program's own copy where each run changes them.
std::shared_ptr<const void> own_attrs(const Operation& operation) {
  if (!operation.attrs || !operation.renewal) return operation.attrs;
  return operation.op->attrs().copy(operation.attrs.get());
}

}  // namespace

struct Program::Impl {
  // Where a step's view points into memory that is known at the run only.
  struct Binding {
    Step* step;
    bool output;
    int index;
    std::int64_t offset;
    void set(std::byte* memory) const {
      auto& views = output ? step->context.outputs : step->context.inputs;
      views[index].data = memory + offset;
    }
  };
  struct External {
    std::vector<Binding> bindings;
    std::byte* bound = nullptr;
    void bind(std::byte* memory) {
      if (memory == bound) return;
      bound = memory;
      for (const Binding& binding : bindings) binding.set(memory);
    }
  };
  struct VariableUse {
    RefPtr<Resource> resource;
    bool written = false;
    External external;
    Tensor value;  // during a run
  };
  // A value that leaves the program. Its memory is kept from run to run while nobody else holds it.
  struct Result {
    TensorSpec spec;
    Device* device;
    External external;
    Tensor tensor;
  };

  Block block;
  MemoryPlan plan;
  std::vector<Tensor> arenas;
  std::unordered_map<const Device*, std::byte*> arena_of;
  std::unique_ptr<Lanes> lanes;
  std::vector<std::pair<void*, const Renewal*>> renewals;
  std::unordered_map<const Value*, External> feeds;
  std::vector<External*> feed_of;  // null: not used
  std::unordered_map<const Value*, std::unique_ptr<VariableUse>> variables;
  std::unordered_map<const Value*, std::unique_ptr<Result>> results;

  explicit Impl(Block source) : block(std::move(source)) {
    optimize(block);
    schedule_collectives(block);
    plan = plan_memory(block);
    make_arenas();
    for (const Value* fetch : block.fetches)
      if (fetch->root().kind == Value::Kind::kComputed) {
        auto& result = results[&fetch->root()];
        if (!result)
          result =
              std::make_unique<Result>(Result{fetch->root().spec, fetch->root().device, {}, {}});
      }
    lanes = std::make_unique<Lanes>(block);
    for (std::size_t i = 0; i < block.operations.size(); ++i)
      fill_step(*block.operations[i], lanes->step(i));
    for (auto& [value, external] : feeds) {
      if (feed_of.size() <= static_cast<std::size_t>(value->index))
        feed_of.resize(static_cast<std::size_t>(value->index) + 1, nullptr);
      feed_of[static_cast<std::size_t>(value->index)] = &external;
    }
  }

  void make_arenas() {
    const MemoryTagScope tag(MemoryTag::kActivations);
    for (const auto& [device, bytes] : plan.arena_bytes) {
      if (bytes == 0) continue;
      const Tensor& arena = arenas.emplace_back(
          make_tensor(const_cast<Device&>(*device), {static_cast<std::int64_t>(bytes)}, uint8));
      arena_of[device] = impl_of(arena).data();
    }
  }

  void fill_step(const Operation& operation, Step& step) {
    step.attrs = own_attrs(operation);
    step.context.op = operation.op;
    step.context.workspace = &workspace_for(*operation.device);
    step.context.attrs_data = step.attrs.get();
    step.kept = std::make_shared<std::vector<std::shared_ptr<void>>>();
    step.context.kept = step.kept.get();
    if (operation.renewal)
      renewals.emplace_back(const_cast<void*>(step.attrs.get()), operation.renewal.get());
    const auto add = [&](InlineList<TensorView>& views, const Value& value, bool output,
                         bool written) {
      views.push_back({nullptr, value.spec.dtype, value.spec.shape});
      point(value, {&step, output, views.size() - 1, value.offset}, written);
    };
    for (std::size_t i = 0; i < operation.inputs.size(); ++i)
      add(step.context.inputs, *operation.inputs[i], false, operation.mutates(i));
    for (const Value* output : operation.outputs) add(step.context.outputs, *output, true, true);
  }

  void point(const Value& value, const Binding& binding, bool written) {
    const Value& root = value.root();
    switch (root.kind) {
      case Value::Kind::kComputed:
        if (const auto result = results.find(&root); result != results.end())
          result->second->external.bindings.push_back(binding);
        else
          binding.set(arena_of.at(root.device) + plan.places.at(&root).offset);
        break;
      case Value::Kind::kConstant: binding.set(impl_of(root.constant).data()); break;
      case Value::Kind::kFeed: feeds[&root].bindings.push_back(binding); break;
      case Value::Kind::kVariable: {
        auto& use = variables[&root];
        if (!use) use = std::make_unique<VariableUse>();
        use->resource = root.resource;
        use->written = use->written || written;
        use->external.bindings.push_back(binding);
        break;
      }
      case Value::Kind::kView: TANDEM_ASSERT(false);
    }
  }

  void bind(std::span<const Tensor> given) {
    for (std::size_t i = 0; i < given.size() && i < feed_of.size(); ++i)
      if (feed_of[i]) feed_of[i]->bind(impl_of(given[i]).data());
    for (auto& [value, use] : variables) {
      use->value = use->written ? use->resource->writable() : use->resource->value();
      use->external.bind(impl_of(use->value).data());
    }
    for (auto& [value, result] : results) {
      const bool reusable = result->tensor.defined() && impl_of(result->tensor).unique() &&
                            impl_of(result->tensor).storage->unique();
      if (reusable)
        impl_of(result->tensor).grad = {};  // whoever held it may have watched it
      else
        result->tensor = make_tensor(*result->device, result->spec.shape, result->spec.dtype);
      result->external.bind(impl_of(result->tensor).data());
    }
    for (const auto& [attrs, renewal] : renewals) (*renewal)(attrs);
  }

  Tensor fetched(const Value& fetch, std::span<const Tensor> given) {
    const Value& root = fetch.root();
    Tensor whole;
    switch (root.kind) {
      case Value::Kind::kComputed: whole = results.at(&root)->tensor; break;
      case Value::Kind::kConstant: whole = root.constant; break;
      case Value::Kind::kFeed: whole = given[static_cast<std::size_t>(root.index)]; break;
      default: TANDEM_ASSERT(false);
    }
    if (root.kind == Value::Kind::kComputed && &fetch == &root) return whole;
    return make_view(whole, fetch.spec.shape, fetch.offset);
  }

  void run(std::span<const Tensor> given, std::vector<Tensor>& fetches) {
    bind(given);
    lanes->run();
    fetches.clear();
    fetches.reserve(block.fetches.size());
    for (const Value* fetch : block.fetches) fetches.push_back(fetched(*fetch, given));
    for (auto& [value, use] : variables) use->value = {};
  }
};

Program::Program(Block block) : impl_(std::make_unique<Impl>(std::move(block))) {}
Program::~Program() = default;

void Program::run(std::span<const Tensor> feeds, std::vector<Tensor>& fetches) {
  impl_->run(feeds, fetches);
}
std::vector<Tensor> Program::run(std::span<const Tensor> feeds) {
  std::vector<Tensor> fetches;
  run(feeds, fetches);
  return fetches;
}

}  // namespace tandem
