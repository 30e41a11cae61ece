#include "graph/program.h"

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <utility>

#include "comm/device_memory.h"
#include "core/parallel.h"
#include "core/status.h"
#include "device/copy.h"
#include "device/native_gpu.h"
#include "graph/arena_parts.h"
#include "graph/collective.h"
#include "graph/control_step.h"
#include "graph/host_collective.h"
#include "graph/lanes.h"
#include "graph/memory_plan.h"
#include "graph/passes/passes.h"
#include "graph/program_results.h"
#include "graph/program_values.h"
#include "graph/region_step.h"
#include "graph/schedule_collectives.h"
#include "tensor/tensor_impl.h"

namespace tandem {
namespace {

// Upper bound on the staging memory for feeds and results. Larger ones are mostly tensors kept for
// a gradient, which would then use their memory twice.
constexpr std::size_t kMaxStagingBytes = std::size_t{256} << 20;

}  // namespace

// The program of a function, a session or a model, or of a body in one of these.
struct Program::Impl final : BodyProgram {
  // Consecutive steps, or one that runs alone. Attributes are updated when the section starts,
  // because earlier control flow may have run random operations or optimizer steps.
  struct Section {
    std::unique_ptr<Lanes> lanes;
    std::unique_ptr<LoneStep> lone;
    std::vector<std::pair<void*, const AttrUpdate*>> attr_updates;
    std::vector<VariableUse*> written;  // by control flow
  };

  Block block;
  MemoryPlan plan;
  std::string name;
  std::optional<ProgramArenas>
      own_arenas;  // none for a body, which uses those of the enclosing program
  ProgramArenas& arenas;
  ArenaParts parts;
  Buckets buckets;
  std::optional<LaneTeam> own_team;
  std::vector<std::unique_ptr<ProgramStep>> steps;  // one per operation
  std::vector<Section> sections;
  std::vector<CollectiveGroup*> groups;
  std::unordered_map<const Value*, External> feeds;
  std::vector<External*> feed_of;  // null if the feed is unused
  std::unordered_map<const Value*, std::unique_ptr<VariableUse>> variables;
  ProgramResults results;
  bool staged = false;  // whether stage_unstable_addresses() has run

  Impl(Block source, ProgramOptions options, LaneTeam* team)
      : block(std::move(source)),
        name(std::move(options.name)),
        own_arenas(options.memory ? std::move(options.memory) : ProgramMemory::make()),
        arenas(*own_arenas),
        parts({arenas, {}}),
        results(arenas) {
    make(team);
  }
  Impl(Block source, LaneTeam& team, const ArenaRegion& place)
      : block(std::move(source)), arenas(place.arenas), parts(place), results(arenas) {
    make(&team);
  }

  // `team`: null to create one.
  void make(LaneTeam* team) {
    optimize(block);
    schedule_collectives(block);
    plan = plan_memory(block);
    for (const auto& [device, bytes] : plan.arena_bytes) parts.take(*device, bytes);
    buckets = make_buckets(block);
    results.add_fetches(block, parts);
    if (!team) team = &own_team.emplace(block);
    steps = make_steps(block);
    make_sections(*team);
    for (auto& [value, external] : feeds) {
      if (feed_of.size() <= static_cast<std::size_t>(value->index))
        feed_of.resize(static_cast<std::size_t>(value->index) + 1, nullptr);
      feed_of[static_cast<std::size_t>(value->index)] = &external;
    }
  }

  void make_sections(LaneTeam& team) {
    std::vector<ProgramStep*> stretch;
    std::vector<std::pair<void*, const AttrUpdate*>> attr_updates;
    const auto end_stretch = [&] {
      if (stretch.empty()) return;
      Section& section = sections.emplace_back();
      section.lanes = std::make_unique<Lanes>(stretch, team);
      section.attr_updates = std::move(attr_updates);
      stretch.clear();
      attr_updates.clear();
    };
    for (std::size_t i = 0; i < steps.size(); ++i) {
      const BlockOperation& operation = *block.operations[i];
      fill_step(operation, *steps[i]);
      if (operation.runs_alone()) {
        end_stretch();
        sections.emplace_back().lone = lone_step(operation, *steps[i], team);
        continue;
      }
      stretch.push_back(steps[i].get());
      if (operation.attr_update)
        attr_updates.emplace_back(const_cast<void*>(steps[i]->attrs.get()),
                                  operation.attr_update.get());
      if (operation.member &&
          std::find(groups.begin(), groups.end(), operation.member->group.get()) == groups.end())
        groups.push_back(operation.member->group.get());
    }
    end_stretch();
    for (Section& section : sections) {
      if (!section.lone || !section.lone->operation().control) continue;
      const BlockOperation& operation = section.lone->operation();
      for (std::size_t i = 0; i < operation.inputs.size(); ++i)
        if (const auto use = variables.find(&operation.inputs[i]->root());
            operation.mutates(i) && use != variables.end())
          section.written.push_back(use->second.get());
    }
  }

  std::unique_ptr<LoneStep> lone_step(const BlockOperation& operation, ProgramStep& step,
                                      LaneTeam& team) const {
    if (operation.region) return std::make_unique<RegionStep>(operation, step);
    if (operation.host_collective) return std::make_unique<HostCollectiveStep>(operation, step);
    return std::make_unique<ControlStep>(operation, step, body_builder(team));
  }

  BodyBuilder body_builder(LaneTeam& team) const {
    const auto build = [&team, place = parts.place_of_bodies()](Block body) {
      return std::make_unique<Impl>(std::move(body), team, place);
    };
    const auto build_during_run = [&team, memory = arenas.shared()](Block body, std::string named) {
      ProgramOptions options{.name = std::move(named), .memory = memory->inner()};
      return std::make_unique<Impl>(std::move(body), std::move(options), &team);
    };
    return {.build = build, .build_during_run = build_during_run};
  }

  void fill_step(const BlockOperation& operation, ProgramStep& step) {
    step.attrs = operation.attrs_of_a_program();
    step.context.op = operation.op;
    step.context.workspace = &workspace_for(*operation.device);
    step.context.attrs_data = step.attrs.get();
    step.kept = std::make_shared<std::vector<std::shared_ptr<void>>>();
    step.context.kept = step.kept.get();
    if (const auto bucket = buckets.find(&operation); bucket != buckets.end())
      step.bucket = &bucket->second;
    const auto add = [&](InlineList<TensorView>& views, const Value& value, bool output,
                         bool written) {
      views.push_back({nullptr, value.spec.dtype, value.spec.shape});
      // Bodies look up the memory of variables themselves.
      if (operation.control && written && !output) return;
      point(value, {&step, output, views.size() - 1, value.offset}, written);
    };
    for (std::size_t i = 0; i < operation.inputs.size(); ++i)
      add(step.context.inputs, *operation.inputs[i], false, operation.mutates(i));
    for (const Value* output : operation.outputs) add(step.context.outputs, *output, true, true);
  }

  void point(const Value& value, Binding binding, bool written) {
    const Value& root = value.root();
    switch (root.kind) {
      case Value::Kind::kComputed:
        if (ProgramResult* const result = results.find(root))
          result->external.bindings.push_back(binding);
        else if (const auto packed = plan.packed.find(&root); packed != plan.packed.end())
          binding.set(static_cast<std::byte*>(
              buckets.at(packed->second.collective).array(packed->second.array).data));
        else {
          binding.offset += static_cast<std::int64_t>(plan.allocations.at(&root).offset);
          parts.add(*root.device, binding);
        }
        break;
      case Value::Kind::kConstant: {
        const TensorImpl& constant = impl_of(root.constant);
        binding.set(constant.data());
        if (constant.storage->own()) binding.view().version = TensorView::kConstant;
        break;
      }
      case Value::Kind::kFeed: {
        External& feed = feeds[&root];
        feed.value = &root;
        feed.bindings.push_back(binding);
        break;
      }
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

  static void bind(VariableUse& use) {
    use.value = use.written ? use.resource->writable() : use.resource->value();
    use.external.bind(impl_of(use.value).data());
    const std::uint64_t version = use.written ? 0 : use.resource->value_version();
    if (version == use.version) return;
    use.version = version;
    for (const Binding& binding : use.external.bindings) binding.view().version = version;
  }

  void bind_arenas() {
    if (!parts.bind()) return;
    for (const Section& section : sections)
      if (section.lanes) section.lanes->forget_recordings();
  }

  // Calls run() while this program holds its arenas. A body uses those of the enclosing program.
  template <class F>
  void with_arenas(const F& run) {
    if (!own_arenas) {
      bind_arenas();
      run();
      return;
    }
    if (DeviceImpl* full = own_arenas->take())
      throw_no_room(name, block, plan, *full, own_arenas->bytes_on(*full));
    struct GiveBack {
      ProgramArenas& arenas;
      ~GiveBack() { arenas.give_back(); }
    } const give_back{*own_arenas};
    bind_arenas();
    try {
      run();
    } catch (const ResourceExhaustedError&) {
      own_arenas->free();  // so that a smaller program fits
      throw;
    }
  }

  void bind_feed(std::size_t feed, std::byte* memory) {
    External* const external = feed < feed_of.size() ? feed_of[feed] : nullptr;
    if (!external) return;
    external->bind(memory);
    if (external->staging) external->copy(external->staging.get(), memory);
  }

  // CUDA graphs contain addresses. If these do not repeat, feeds and results whose addresses change
  // get staging buffers: one copy each instead of one launch per kernel.
  void stage_unstable_addresses() {
    if (staged || std::none_of(sections.begin(), sections.end(), [](const Section& section) {
          return section.lanes && section.lanes->wastes_recordings();
        }))
      return;
    staged = true;
    std::vector<External*> moving;
    std::size_t bytes = 0;
    const auto add = [&](External& external) {
      if (!external.moves || !as_native(*external.value->device)) return;
      moving.push_back(&external);
      bytes += external.value->bytes();
    };
    for (auto& [value, external] : feeds) add(external);
    results.for_each_external(add);
    if (bytes > kMaxStagingBytes) return;
    const Scoped tag(memory_tag, MemoryTag::kActivations);
    for (External* external : moving) {
      external->staging = try_allocate_on(*external->value->device, external->value->bytes());
      if (external->staging) continue;
      for (External* other : moving) other->staging = nullptr;
      return;
    }
  }

  // REQUIRES: the feeds are bound.
  void run_sections() {
    for (auto& [value, use] : variables) bind(*use);
    results.bind();
    for (CollectiveGroup* group : groups) group->begin();
    for (Section& section : sections) {
      if (!section.lone) {
        for (const auto& [attrs, attr_update] : section.attr_updates) (*attr_update)(attrs);
        section.lanes->run();
        continue;
      }
      // A body writes a copy if something else refers to the variable, so drop the reference.
      for (VariableUse* use : section.written) use->value = {};
      run_alone(*section.lone);
      for (VariableUse* use : section.written) bind(*use);
    }
    for (auto& [value, use] : variables) use->value = {};
  }

  void run_alone(LoneStep& step) {
    try {
      step.run();
    } catch (const std::exception& cause) {
      for (CollectiveGroup* group : groups) group->abort(cause.what());
      throw;
    }
  }

  void run(std::span<const Tensor> given, std::vector<Tensor>& fetches) {
    with_arenas([&] { run_with_arenas(given, fetches); });
  }

  void run_with_arenas(std::span<const Tensor> given, std::vector<Tensor>& fetches) {
    stage_unstable_addresses();
    for (std::size_t i = 0; i < given.size(); ++i) bind_feed(i, impl_of(given[i]).data());
    run_sections();
    results.copy_from_staging();
    results.fetch(block, given, fetches);
  }

  bool concurrent() const {
    return std::all_of(steps.begin(), steps.end(), [this](const auto& step) {
      const BlockOperation& operation = *step->operation;
      if (operation.runs_alone() || operation.member || operation.attr_update ||
          operation.has(kStateful) || operation.device != steps[0]->operation->device ||
          operation.device->backend() != DeviceBackend::kCpu)
        return false;
      for (std::size_t i = 0; i < operation.inputs.size(); ++i)
        if (operation.mutates(i)) return false;
      return true;
    });
  }

  // The compiled region that is the whole program, and can loop. Else null.
  RegionStep* only_region() const {
    const bool is_one = sections.size() == 1 && sections[0].lone;
    if (!is_one || !sections[0].lone->operation().region) return nullptr;
    auto* const region = static_cast<RegionStep*>(sections[0].lone.get());
    return region->can_loop() ? region : nullptr;
  }

  void run_in_order(RegionStep& region, std::span<ProgramRun> runs,
                    const std::function<void()>& after_each) {
    for (auto& [value, use] : variables) bind(*use);
    std::vector<RegionRun> collected;
    for (const ProgramRun& run : runs) {
      for (std::size_t i = 0; i < run.feeds.size(); ++i) bind_feed(i, impl_of(run.feeds[i]).data());
      results.bind();
      collected.push_back(region.next_run());
      results.fetch(block, run.feeds, *run.fetches);
      after_each();
    }
    region.run(collected);
    for (auto& [value, use] : variables) use->value = {};
  }

  void run_at(std::span<std::byte* const> given,
              std::span<const Destination> destinations) override {
    with_arenas([&] { run_at_with_arenas(given, destinations); });
  }

  void run_at_with_arenas(std::span<std::byte* const> given,
                          std::span<const Destination> destinations) {
    stage_unstable_addresses();
    for (std::size_t i = 0; i < given.size(); ++i) bind_feed(i, given[i]);
    results.give(block, destinations);
    run_sections();
    for (std::size_t i = 0; i < destinations.size(); ++i) {
      const Value& fetch = *block.fetches[i];
      const std::byte* from = results.memory_of(fetch, given);
      if (from != destinations[i].memory)
        copy_between(*destinations[i].device, destinations[i].memory, *fetch.device, from,
                     fetch.bytes());
    }
  }
};

Program::Program(Block block, ProgramOptions options) {
  const bool casts = !keep_casts(block).empty();
  impl_ = std::make_unique<Impl>(std::move(block), std::move(options), nullptr);
  // A run may cast the copies of variables again.
  concurrent_ = !casts && impl_->concurrent();
}
Program::~Program() = default;

void Program::run(std::span<const Tensor> feeds, std::vector<Tensor>& fetches) {
  impl_->run(feeds, fetches);
}
void Program::run_in_order(std::span<ProgramRun> runs, const std::function<void()>& after_each) {
  if (RegionStep* const region = impl_->only_region())
    return impl_->with_arenas([&] { impl_->run_in_order(*region, runs, after_each); });
  for (const ProgramRun& each : runs) {
    run(each.feeds, *each.fetches);
    after_each();
  }
}
std::vector<Tensor> Program::run(std::span<const Tensor> feeds) {
  std::vector<Tensor> fetches;
  run(feeds, fetches);
  return fetches;
}

}  // namespace tandem
