#include "graph/region_step.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "device/device_manager.h"
#include "device/pjrt/pjrt_device.h"
#include "graph/compiled_region.h"
#include "graph/stablehlo/run_numbers.h"

namespace tandem {

namespace {

PjrtDevice& device_of(const CompiledRegion& region, std::size_t replica) {
  return static_cast<PjrtDevice&>(*region.nodes->devices[replica]);
}

}  // namespace

std::unique_ptr<pjrt::Executable> compile_region(const CompiledRegion& region) {
  pjrt::CompileOptions options{.name = region.module.name};
  const auto& written = region.module.written;
  for (std::size_t i = 0; i < region.module.parameters.size(); ++i) {
    const TensorSpec& spec = region.module.parameters[i].spec;
    options.parameters.push_back(
        {spec.dtype, spec.shape, std::find(written.begin(), written.end(), i) != written.end()});
  }
  for (const TensorSpec& spec : region.module.fetches)
    options.results.push_back({spec.dtype, spec.shape});
  for (const std::size_t parameter : written)
    options.results.push_back(options.parameters[parameter]);
  for (std::size_t i = 0; i < region.module.counted.size(); ++i)
    options.results.push_back({DType::kInt64, Shape::scalar()});
  for (std::size_t replica = 0; replica < region.replicas.size(); ++replica)
    options.devices.push_back(device_of(region, replica).client_index());
  return device_of(region, 0).client().compile(region.module.text, options);
}

struct RegionStep::Impl {
  using Kind = stablehlo::Parameter::Kind;
  using Arguments = std::vector<std::shared_ptr<pjrt::Buffer>>;

  const BlockOperation& operation;
  ProgramStep& step;
  const CompiledRegion& region;
  std::unique_ptr<pjrt::Executable> executable;
  std::vector<Arguments> constants;  // by replica and parameter; null for other parameters

  Impl(const BlockOperation& made_of, ProgramStep& its_step)
      : operation(made_of), step(its_step), region(*made_of.region) {
    executable = compile_region(region);
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
      Device& host = DeviceManager::get().host();
      const Tensor value =
          node.value.defined()
              ? copy_to_device(node.value, host)
              : from_host(host, parameter.spec.shape, parameter.spec.dtype, node.literal.data());
      uploaded.back() = send(replica, parameter.spec, impl_of(value).data(),
                             std::make_shared<const Tensor>(value));
    }
    return uploaded;
  }

  std::shared_ptr<pjrt::Buffer> send(std::size_t replica, const TensorSpec& spec, const void* host,
                                     std::shared_ptr<const void> keep) const {
    return device(replica).client().from_host(host, spec.dtype, spec.shape,
                                              device(replica).client_index(), std::move(keep));
  }

  template <class T>
  std::shared_ptr<pjrt::Buffer> send_numbers(std::size_t replica, const TensorSpec& spec,
                                             std::vector<T> numbers) const {
    auto kept = std::make_shared<const std::vector<T>>(std::move(numbers));
    return send(replica, spec, kept->data(), kept);
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

  void add_arguments(std::size_t replica, Arguments& given) const {
    const stablehlo::Module& module = region.module;
    const stablehlo::NodeOfReplica node_of = nodes_of(replica);
    for (std::size_t i = 0; i < module.parameters.size(); ++i) {
      const stablehlo::Parameter& parameter = module.parameters[i];
      const TensorSpec& spec = parameter.spec;
      switch (parameter.kind) {
        case Kind::kFeed:
          given.push_back(
              device(replica).contents().buffer(input(replica, i), spec.dtype, spec.shape));
          break;
        case Kind::kVariable:
          given.push_back(
              is_taken(replica, i)
                  ? device(replica).contents().take(input(replica, i), spec.dtype, spec.shape)
                  : device(replica).contents().buffer(input(replica, i), spec.dtype, spec.shape));
          break;
        case Kind::kConstant: given.push_back(constants[replica][i]); break;
        case Kind::kNumbers: {
          const std::vector<double> numbers = numbers_of_run(module.numbers, node_of);
          given.push_back(
              send_numbers(replica, spec, std::vector<float>(numbers.begin(), numbers.end())));
          break;
        }
        case Kind::kDoubles:
          given.push_back(send_numbers(replica, spec, numbers_of_run(module.doubles, node_of)));
          break;
        case Kind::kKeys:
          given.push_back(send_numbers(replica, spec, keys_of_run(module, node_of)));
          break;
      }
    }
  }

  // Puts the variables back that add_arguments() has taken. If the plug-in has used up their memory
  // nevertheless, reading them is its error.
  void give_back(const std::vector<Arguments>& given) const {
    for (std::size_t replica = 0; replica < given.size(); ++replica)
      for (std::size_t i = 0; i < given[replica].size(); ++i)
        if (is_taken(replica, i))
          device(replica).contents().set(input(replica, i), given[replica][i]);
  }

  std::vector<Arguments> start() const {
    std::vector<Arguments> given(region.replicas.size());
    try {
      for (std::size_t replica = 0; replica < given.size(); ++replica)
        add_arguments(replica, given[replica]);
      return executable->run(given);
    } catch (...) {
      give_back(given);
      throw;
    }
  }

  // Later random operations depend on them, so the host waits.
  void read_counts(std::size_t replica, const Arguments& results) const {
    const std::size_t first = region.replicas[replica].output_of.size();
    for (std::size_t i = 0; i < region.module.counted.size(); ++i) {
      std::int64_t count = 0;
      results[first + i]->to_host(&count, sizeof count);
      set_count(region.module, i, count, nodes_of(replica));
    }
  }

  void run() {
    const std::vector<Arguments> results = start();
    for (std::size_t replica = 0; replica < results.size(); ++replica) {
      const std::size_t fetches = region.module.fetches.size();
      const std::vector<std::size_t>& output_of = region.replicas[replica].output_of;
      for (std::size_t i = 0; i < output_of.size(); ++i) {
        const auto at = static_cast<int>(output_of[i]);
        const auto& views = i < fetches ? step.context.outputs : step.context.inputs;
        device(replica).contents().set(static_cast<std::byte*>(views[at].data),
                                       results[replica][i]);
      }
      read_counts(replica, results[replica]);
    }
  }
};

RegionStep::RegionStep(const BlockOperation& operation, ProgramStep& step)
    : impl_(std::make_unique<Impl>(operation, step)) {}
RegionStep::~RegionStep() = default;

const BlockOperation& RegionStep::operation() const { return impl_->operation; }
void RegionStep::run() { impl_->run(); }

}  // namespace tandem
