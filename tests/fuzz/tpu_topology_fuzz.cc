// Any bytes as a TopologyProto result in a topology that serializes to its own bytes, or in an
// InvalidArgumentError.
#include <cstdint>
#include <string>

#include "core/status.h"
#include "fuzz/damage.h"
#include "tandem/tpu_system.h"

namespace {

using tandem::distribute::Topology;

void parse(const std::string& bytes) {
  try {
    const Topology topology = Topology::parse(bytes);
    const std::string serialized = topology.serialized();
    const Topology again = Topology::parse(serialized);
    TANDEM_ASSERT(again.serialized() == serialized);
    TANDEM_ASSERT(again.device_coordinates() == topology.device_coordinates());
    const int devices = topology.num_tasks() * topology.num_tpus_per_task();
    const auto& [x, y, z, cores] = topology.mesh_shape();
    TANDEM_ASSERT(static_cast<int>(topology.missing_devices().size()) ==
                  x * y * z * cores - devices);
  } catch (const tandem::InvalidArgumentError&) {
  }
}

}  // namespace

// The bytes themselves, and a good topology that they damage.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  static const std::string good =
      Topology({2, 1, 1, 2}, {{{0, 0, 0, 0}, {0, 0, 0, 1}}, {{1, 0, 0, 0}, {1, 0, 0, 1}}})
          .serialized();
  parse(std::string(reinterpret_cast<const char*>(bytes), size));
  std::string damaged = good;
  tandem::fuzz::damage(damaged, {bytes, size});
  parse(damaged);
  return 0;
}
