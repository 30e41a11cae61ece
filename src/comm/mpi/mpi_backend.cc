#include "comm/mpi/mpi_backend.h"

#include "core/module.h"

namespace tandem {

bool has_mpi() { return can_load(kMpiModule); }

std::string mpi_obstacle(int rank, int size) {
  std::string text;
  load<void(int, int, std::string*)>(kMpiModule, "tandem_mpi_obstacle")(rank, size, &text);
  return text;
}

std::unique_ptr<Backend> make_mpi_backend(MpiOptions options) {
  const auto make = load<Backend*(MpiOptions*)>(kMpiModule, "tandem_make_mpi_backend");
  return std::unique_ptr<Backend>(make(&options));
}

}  // namespace tandem
