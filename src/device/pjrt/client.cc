#include "device/pjrt/client.h"

#include "core/module.h"

namespace tandem::pjrt {
namespace {

// `topology`: of a compiler; empty for a client.
std::shared_ptr<Client> load(const std::string& path, const Options& options,
                             const std::string& topology) {
  using Load =
      void(const std::string&, const Options&, const std::string&, std::shared_ptr<Client>*);
  std::shared_ptr<Client> client;
  tandem::load<Load>(kPjrtModule, "tandem_load_pjrt")(path, options, topology, &client);
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
