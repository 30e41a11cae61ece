#include "distribute/tpu_system.h"

#include <algorithm>
#include <atomic>
#include <set>
#include <string>

#include "core/log.h"
#include "core/status.h"
#include "device/device_manager.h"
#include "device/pjrt/pjrt_device.h"
#include "distribute/tpu_environment.h"
#include "graph/graph.h"

namespace tandem::distribute {
namespace {

// x, y and z, 0 where the plug-in has fewer axes, and the core.
using Place = std::array<std::int64_t, 4>;

// Empty if the plug-in does not tell all places.
std::vector<Place> places_of(std::span<const TpuCore> cores) {
  std::vector<Place> places;
  for (const TpuCore& core : cores) {
    if (core.coordinates.empty() || core.coordinates.size() > 3) return {};
    Place place{};
    std::copy(core.coordinates.begin(), core.coordinates.end(), place.begin());
    place.back() = core.core_on_chip;
    places.push_back(place);
  }
  const bool distinct = std::set<Place>(places.begin(), places.end()).size() == places.size();
  return distinct ? places : std::vector<Place>();
}

std::vector<Place> line(std::size_t count) {
  std::vector<Place> places(count);
  for (std::size_t i = 0; i < count; ++i) places[i][0] = static_cast<std::int64_t>(i);
  return places;
}

}  // namespace

std::vector<TpuCore> attached_cores(const char* who) {
  std::vector<TpuCore> cores;
  for (Device* const each : DeviceManager::get().devices(DeviceType::kTpu, who)) {
    const auto& device = static_cast<const PjrtDevice&>(*each);
    const auto index = static_cast<std::size_t>(device.client_index());
    const pjrt::DeviceInfo& info = device.client().devices()[index];
    cores.push_back({.coordinates = info.coordinates, .core_on_chip = info.core_on_chip});
  }
  return cores;
}

Topology topology_of(std::span<const TpuCore> cores) {
  if (cores.empty())
    fail<InvalidArgumentError>(
        "no TPU is attached to this host: load the PJRT plug-in of an accelerator by "
        "config::load_pjrt_plugin() or TANDEM_PJRT_PLUGIN");
  std::vector<Place> places = places_of(cores);
  if (places.empty()) places = line(cores.size());
  std::array<int, 4> shape{};
  std::vector<TPUCoordinates> coordinates(places.size());
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    const auto on_axis = [&](const Place& a, const Place& b) { return a[axis] < b[axis]; };
    const auto [least, most] = std::minmax_element(places.begin(), places.end(), on_axis);
    const std::int64_t begin = (*least)[axis], end = (*most)[axis];
    // Unsigned: the difference of any two numbers fits.
    const std::uint64_t extent =
        static_cast<std::uint64_t>(end) - static_cast<std::uint64_t>(begin);
    if (extent >= kMaxTpuCores)
      fail<InvalidArgumentError>(
          "expected coordinates on axis {} that differ by less than {}, got {} and {}", axis,
          kMaxTpuCores, begin, end);
    shape[axis] = static_cast<int>(extent) + 1;
    for (std::size_t i = 0; i < places.size(); ++i)
      coordinates[i][axis] = static_cast<int>(places[i][axis] - begin);
  }
  return {shape, {std::move(coordinates)}};
}

void require_local(const TPUClusterResolver& resolver, const char* who) {
  if (!resolver.is_local())
    fail<UnimplementedError>(
        "[{}] cannot connect to the remote TPU '{}': Tandem runs on devices that are attached to "
        "this host, by their PJRT plug-in (config::load_pjrt_plugin() or TANDEM_PJRT_PLUGIN) and "
        "TPUClusterResolver(\"local\")",
        who, resolver.tpu());
}

}  // namespace tandem::distribute

namespace tandem::tpu {
namespace {

using distribute::Topology;
using distribute::TPUClusterResolver;

constinit std::atomic<bool> initialized{false};  // whether the local system is

void refuse_in_function() {
  if (building)
    fail<RuntimeError>(
        "initialize_tpu_system is not supported within tf.functions.  You should call "
        "initialize_tpu_system outside of your tf.function.");
}

TPUClusterResolver system_or_default(const std::optional<TPUClusterResolver>& resolver) {
  if (resolver) return *resolver;
  return TPUClusterResolver(distribute::tpu_node_of_environment() ? "" : "local");
}

Topology topology_of_cores(const std::vector<distribute::TpuCore>& cores) {
  try {
    return distribute::topology_of(cores);
  } catch (const InvalidArgumentError& error) {
    fail<NotFoundError>("TPUs not found in the cluster. Failed in initialization: {}",
                        error.what());
  }
}

}  // namespace

Topology initialize_tpu_system(const std::optional<TPUClusterResolver>& resolver) {
  constexpr const char* kName = "initialize_tpu_system";
  refuse_in_function();
  const TPUClusterResolver system = system_or_default(resolver);
  require_local(system, kName);
  if (initialized)
    logging::warn(
        "TPU system {} has already been initialized. Reinitializing the TPU can cause previously "
        "created variables on TPU to be lost.",
        system.tpu());
  logging::info("Initializing the TPU system: {}", system.tpu());
  Topology topology = topology_of_cores(distribute::attached_cores(kName));
  initialized = true;
  logging::info("Finished initializing TPU system.");
  return topology;
}

void shutdown_tpu_system(const std::optional<TPUClusterResolver>& resolver) {
  refuse_in_function();
  const TPUClusterResolver system = system_or_default(resolver);
  if (!system.is_local() || !initialized)
    logging::warn("You are shutting down a TPU system {} that has not been initialized.",
                  system.tpu());
  require_local(system, "shutdown_tpu_system");
  logging::info("Shutting down the TPU system: {}", system.tpu());
  initialized = false;
  logging::info("Finished shutting down TPU system.");
}

}  // namespace tandem::tpu
