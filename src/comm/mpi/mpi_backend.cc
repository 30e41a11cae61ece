#include "comm/mpi/mpi_backend.h"

#include <mutex>

#include "comm/transport/transport_backend.h"
#include "core/env.h"
#include "core/module.h"
#include "core/status.h"

namespace tandem {
namespace {

// Never destroyed: used until the process ends.
struct MpiWorld {
  std::mutex mutex;
  std::shared_ptr<Transport> transport;  // of all ranks
  int groups = 0;                        // made, in the same order on every rank
};

}  // namespace

bool has_mpi() { return can_load(kMpiModule); }

std::string mpi_obstacle(int rank, int size) {
  std::string text;
  load<void(int, int, std::string*)>(kMpiModule, "tandem_mpi_obstacle")(rank, size, &text);
  return text;
}

std::unique_ptr<Backend> make_mpi_backend(const MpiOptions& options) {
  if (const std::string text = mpi_obstacle(options.rank, options.size); !text.empty())
    fail<FailedPreconditionError>("[mpi] {}", text);
  static auto& world = *new MpiWorld;
  TransportBackendOptions group{.transport = nullptr,
                                .name = "",
                                .time_limit = options.time_limit,
                                .membership = options.membership};
  group.local_size = static_cast<int>(env_int("OMPI_COMM_WORLD_LOCAL_SIZE", 1).value_or(1));
  {
    const std::lock_guard lock(world.mutex);
    if (!world.transport) {
      tandem_transport functions = {};
      load<void(const MpiOptions*, tandem_transport*)>(kMpiModule, "tandem_connect_mpi")(
          &options, &functions);
      world.transport = Transport::make(functions, "mpi");
    }
    group.transport = world.transport;
    group.name = std::to_string(world.groups++);
  }
  return make_transport_backend(group);
}

}  // namespace tandem
