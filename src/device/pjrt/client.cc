#include "device/pjrt/client.h"

#include "core/module.h"

namespace tandem::pjrt {
namespace {

constexpr Module kModule = {.backend = "pjrt",
                            .file = "libtandem_pjrt.so",
                            .factory = "tandem_load_pjrt",
                            .library = "of the PJRT C API (scripts/setup --tpu)",
                            .runtime = "of a PJRT plug-in"};

}  // namespace

std::shared_ptr<Client> load_client(const std::string& path, const Options& options) {
  using Factory = void (*)(const std::string&, const Options&, std::shared_ptr<Client>*);
  std::shared_ptr<Client> client;
  reinterpret_cast<Factory>(load_factory(kModule))(path, options, &client);
  return client;
}

}  // namespace tandem::pjrt
