#include "graph/region_step.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "device/copy.h"
#include "device/device_manager.h"
#include "device/pjrt/pjrt_device.h"
#include "graph/compiled_region.h"
#include "graph/control_flow.h"
#include "graph/stablehlo/axes.h"
#include "graph/stablehlo/module_text.h"
#include "graph/stablehlo/run_numbers.h"

namespace tandem {

namespace {

PjrtDevice& device_of(const CompiledRegion& region, std::size_t replica) {
  return static_cast<PjrtDevice&>(*region.nodes->devices[replica]);
}

// The shape of the numbers of some runs.
Shape shape_of_runs(const TensorType& spec, int times) {
  return times == 1 ? spec.shape : stablehlo::stacked(times, spec.shape);
}

}  // namespace

std::unique_ptr<pjrt::Executable> compile_region(const CompiledRegion& region, int times) {
  const stablehlo::Module& module = region.module;
  pjrt::CompileOptions options{.name = module.name};
  for (std::size_t i = 0; i < module.parameters.size(); ++i) {
    const auto& [kind, spec, index, node] = module.parameters[i];
    const bool donated =
        std::find(module.written.begin(), module.written.end(), i) != module.written.end();
    const Shape shape = stablehlo::differs_per_run(kind) ? shape_of_runs(spec, times) : spec.shape;
    const int arguments = kind == stablehlo::Parameter::Kind::kFeed ? times : 1;
    for (int j = 0; j < arguments; ++j) options.parameters.push_back({spec.dtype, shape, donated});
  }
  for (int run = 0; run < times; ++run)
    for (const TensorType& spec : module.fetches)
      options.results.push_back({spec.dtype, spec.shape});
  for (const std::size_t parameter : module.written) {
    const TensorType& spec = module.parameters[parameter].spec;
    options.results.push_back({spec.dtype, spec.shape, true});
  }
  for (std::size_t i = 0; i < module.num_counts(); ++i)
    options.results.push_back({DType::kInt64, Shape::scalar()});
  for (std::size_t replica = 0; replica < region.replicas.size(); ++replica)
    options.devices.push_back(device_of(region, replica).client_index());
  const std::string text =
      times == 1 ? stablehlo::text_of(module) : stablehlo::text_of_loop(module, times);
  return device_of(region, 0).client().compile(text, options);
}

struct RegionStep::Impl {
  using Kind = stablehlo::Parameter::Kind;
  using Arguments = std::vector<std::shared_ptr<pjrt::Buffer>>;

  const BlockOperation& operation;
  ProgramStep& step;
  const CompiledRegion& region;
  std::map<std::size_t, std::unique_ptr<pjrt::Executable>> executables;  // by number of runs
  std::vector<Arguments> constants;  // by replica and parameter; null for other parameters

  Impl(const BlockOperation& made_of, ProgramStep& its_step)
      : operation(made_of), step(its_step), region(*made_of.region) {
    executables[1] = compile_region(region);
    for (std::size_t replica = 0; replica < region.replicas.size(); ++replica)
      constants.push_back(upload_constants(replica));
  }

  PjrtDevice& device(std::size_t replica) const { return device_of(region, replica); }

  Arguments upload_constants(std::size_t replica) const {
    Arguments uploaded;
    for (const stablehlo::Parameter& parameter : region.module.parameters) {
      uploaded.emplace_back();
      if (parameter.kind != Kind::kConstant) continue;
      const Node& node = region.node_of(replica, *parameter.node);
      DeviceImpl& host = DeviceManager::get().host();
      const Tensor value =
          node.value.defined()
              ? copy_to_device(node.value, host)
              : from_host(host, parameter.spec.shape, parameter.spec.dtype, node.literal.data());
      uploaded.back() = send(replica, parameter.spec.dtype, parameter.spec.shape,
                             impl_of(value).data(), std::make_shared<const Tensor>(value));
    }
    return uploaded;
  }

  std::shared_ptr<pjrt::Buffer> send(std::size_t replica, DType dtype, const Shape& shape,
                                     const void* host, std::shared_ptr<const void> keep) const {
    return device(replica).client().from_host(host, dtype, shape, device(replica).client_index(),
                                              std::move(keep));
  }

  // Sends the numbers of all runs.
  template <class T, class N>
  std::shared_ptr<pjrt::Buffer> send_numbers(const std::vector<RegionRun>& runs,
                                             std::size_t replica, const TensorType& spec,
                                             std::vector<N> RegionRun::Replica::*numbers) const {
    auto kept = std::make_shared<std::vector<T>>();
    for (const RegionRun& run : runs) {
      const std::vector<N>& of_run = run.replicas[replica].*numbers;
      kept->insert(kept->end(), of_run.begin(), of_run.end());
    }
    const T* const host = kept->data();
    const Shape shape = shape_of_runs(spec, static_cast<int>(runs.size()));
    return send(replica, spec.dtype, shape, host, std::move(kept));
  }

  std::byte* input(std::size_t replica, std::size_t parameter) const {
    const auto index = region.replicas[replica].input_of[parameter];
    return static_cast<std::byte*>(step.context.inputs[static_cast<int>(index)].data);
  }

  // Whether the program writes its result into the parameter's memory.
  bool is_taken(std::size_t replica, std::size_t parameter) const {
    return region.module.parameters[parameter].kind == Kind::kVariable &&
           region.writes[region.replicas[replica].input_of[parameter]];
  }

  stablehlo::NodeOfReplica nodes_of(std::size_t replica) const {
    return
        [this, replica](const Node& node) -> const Node& { return region.node_of(replica, node); };
  }

  RegionRun::Replica next_run(std::size_t replica) const {
    const stablehlo::Module& module = region.module;
    const stablehlo::NodeOfReplica node_of = nodes_of(replica);
    RegionRun::Replica run;
    for (std::size_t i = 0; i < module.parameters.size(); ++i) {
      const auto& [kind, spec, index, node] = module.parameters[i];
      if (kind == Kind::kFeed)
        run.feeds.push_back(
            device(replica).contents().buffer(input(replica, i), spec.dtype, spec.shape));
    }
    for (std::size_t i = 0; i < module.fetches.size(); ++i) {
      const auto at = static_cast<int>(region.replicas[replica].output_of[i]);
      run.results.push_back(static_cast<std::byte*>(step.context.outputs[at].data));
    }
    run.numbers = numbers_of_run(module.numbers, node_of);
    run.doubles = numbers_of_run(module.doubles, node_of);
    run.keys = keys_of_run(module, node_of);
    return run;
  }

  void add_arguments(const std::vector<RegionRun>& runs, std::size_t replica,
                     Arguments& given) const {
    const stablehlo::Module& module = region.module;
    std::size_t feed = 0;
    for (std::size_t i = 0; i < module.parameters.size(); ++i) {
      const auto& [kind, spec, index, node] = module.parameters[i];
      PjrtContents& contents = device(replica).contents();
      using OfReplica = RegionRun::Replica;
      switch (kind) {
        case Kind::kFeed:
          for (const RegionRun& run : runs) given.push_back(run.replicas[replica].feeds[feed]);
          ++feed;
          break;
        case Kind::kVariable:
          given.push_back(is_taken(replica, i)
                              ? contents.take(input(replica, i), spec.dtype, spec.shape)
                              : contents.buffer(input(replica, i), spec.dtype, spec.shape));
          break;
        case Kind::kConstant: given.push_back(constants[replica][i]); break;
        case Kind::kNumbers:
          given.push_back(send_numbers<float>(runs, replica, spec, &OfReplica::numbers));
          break;
        case Kind::kDoubles:
          given.push_back(send_numbers<double>(runs, replica, spec, &OfReplica::doubles));
          break;
        case Kind::kKeys:
          given.push_back(send_numbers<std::int64_t>(runs, replica, spec, &OfReplica::keys));
          break;
      }
    }
  }

  // Puts the variables back that add_arguments() has taken. If the plug-in has used up their memory
  // nevertheless, reading them is its error.
  void give_back(std::size_t times, std::size_t replica, const Arguments& given) const {
    std::size_t argument = 0;
    for (std::size_t i = 0; i < region.module.parameters.size() && argument < given.size(); ++i) {
      if (is_taken(replica, i)) device(replica).contents().set(input(replica, i), given[argument]);
      argument += region.module.parameters[i].kind == Kind::kFeed ? times : 1;
    }
  }

  std::vector<Arguments> start(const std::vector<RegionRun>& runs) {
    auto& executable = executables[runs.size()];
    if (!executable) executable = compile_region(region, static_cast<int>(runs.size()));
    std::vector<Arguments> given(region.replicas.size());
    try {
      for (std::size_t replica = 0; replica < given.size(); ++replica)
        add_arguments(runs, replica, given[replica]);
      return executable->run(given);
    } catch (...) {
      for (std::size_t replica = 0; replica < given.size(); ++replica)
        give_back(runs.size(), replica, given[replica]);
      throw;
    }
  }

  // Later random operations and attributes depend on them, so the host waits.
  void read_counts(std::size_t replica, Arguments::const_iterator counts) const {
    const auto next = [&] {
      std::int64_t count = 0;
      (*counts++)->to_host(&count, sizeof count);
      return count;
    };
    for (std::size_t i = 0; i < region.module.counted.size(); ++i)
      set_count(region.module, i, next(), nodes_of(replica));
    for (const Resource* counter : region.module.counters)
      add_to(region.counter_of(replica, *counter), next());
  }

  // Copies the elements of written variables of other devices there.
  void send_home(std::size_t replica, Arguments::const_iterator written) const {
    for (const std::size_t parameter : region.module.written) {
      pjrt::Buffer& buffer = **written++;
      const auto home = region.replicas[replica].home_of.find(parameter);
      if (home == region.replicas[replica].home_of.end()) continue;
      const TensorType& spec = region.module.parameters[parameter].spec;
      std::vector<std::byte> elements(static_cast<std::size_t>(spec.shape.num_elements()) *
                                      size_of(spec.dtype));
      buffer.to_host(elements.data(), elements.size());
      DeviceImpl& device = *operation.inputs[home->second]->device;
      host_to_device(device, step.context.inputs[static_cast<int>(home->second)].data,
                     elements.data(), elements.size());
      device.stream().synchronize();  // before the elements go
    }
  }

  void run(const std::vector<RegionRun>& runs) {
    const std::vector<Arguments> results = start(runs);
    std::vector<Arguments::const_iterator> written;
    for (std::size_t replica = 0; replica < results.size(); ++replica) {
      auto result = results[replica].begin();
      PjrtContents& contents = device(replica).contents();
      for (const RegionRun& run : runs)
        for (std::byte* memory : run.replicas[replica].results) contents.set(memory, *result++);
      written.push_back(result);
      for (const std::size_t parameter : region.module.written) {
        if (is_taken(replica, parameter)) contents.set(input(replica, parameter), *result);
        ++result;
      }
    }
    for (std::size_t replica = 0; replica < results.size(); ++replica) {
      send_home(replica, written[replica]);
      read_counts(replica,
                  written[replica] + static_cast<std::ptrdiff_t>(region.module.written.size()));
    }
  }
};

RegionStep::RegionStep(const BlockOperation& operation, ProgramStep& step)
    : impl_(std::make_unique<Impl>(operation, step)) {}
RegionStep::~RegionStep() = default;

const BlockOperation& RegionStep::operation() const { return impl_->operation; }
void RegionStep::run() { run({next_run()}); }
void RegionStep::run(const std::vector<RegionRun>& runs) { impl_->run(runs); }

bool RegionStep::can_loop() const { return impl_->region.module.num_counts() == 0; }

RegionRun RegionStep::next_run() const {
  RegionRun run;
  for (std::size_t replica = 0; replica < impl_->region.replicas.size(); ++replica)
    run.replicas.push_back(impl_->next_run(replica));
  return run;
}

}  // namespace tandem
