#include "comm/mpi/mpi_backend.h"

#include "core/module.h"

namespace tandem {
namespace {

constexpr Module kMpiModule = {.backend = "mpi",
                               .file = "libtandem_mpi.so",
                               .factory = "tandem_make_mpi_backend",
                               .library = "libopenmpi-dev",
                               .runtime = "openmpi-bin"};

}  // namespace

bool has_mpi() { return can_load(kMpiModule); }

std::unique_ptr<Backend> make_mpi_backend(MpiOptions options) {
  using Factory = Backend* (*)(MpiOptions*);
  const auto factory = reinterpret_cast<Factory>(load_factory(kMpiModule));
  return std::unique_ptr<Backend>(factory(&options));
}

}  // namespace tandem
