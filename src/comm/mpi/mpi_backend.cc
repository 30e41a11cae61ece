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

std::string mpi_obstacle(int rank, int size) {
  Module module = kMpiModule;
  module.factory = "tandem_mpi_obstacle";
  std::string text;
  reinterpret_cast<void (*)(int, int, std::string*)>(load_factory(module))(rank, size, &text);
  return text;
}

std::unique_ptr<Backend> make_mpi_backend(MpiOptions options) {
  using Factory = Backend* (*)(MpiOptions*);
  const auto factory = reinterpret_cast<Factory>(load_factory(kMpiModule));
  return std::unique_ptr<Backend>(factory(&options));
}

}  // namespace tandem
