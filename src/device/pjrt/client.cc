#include "device/pjrt/client.h"

#include "core/module.h"

namespace tandem::pjrt {
namespace {

constexpr Module kPjrtModule = {.backend = "pjrt",
                                .file = "libtandem_pjrt.so",
                                .factory = "tandem_load_pjrt",
                                .library = "of the PJRT C API (scripts/setup --tpu)",
                                .runtime = "of a PJRT plug-in"};

// `topology`: of a compiler; empty for a client.
std::shared_ptr<Client> load(const std::string& path, const Options& options,
                             const std::string& topology) {
  using Factory =
      void (*)(const std::string&, const Options&, const std::string&, std::shared_ptr<Client>*);
  std::shared_ptr<Client> client;
  reinterpret_cast<Factory>(load_factory(kPjrtModule))(path, options, topology, &client);
  return client;
}

}  // namespace

std::shared_ptr<Client> load_client(const std::string& path, const Options& options) {
  return load(path, options, {});
}

std::shared_ptr<Client> load_compiler(const std::string& path, const std::string& topology) {
  return load(path, {}, topology);
}

}  // namespace tandem::pjrt
