// The factory of the module.
#include "device/pjrt/module/compiler_client.h"
#include "device/pjrt/module/plugin_client.h"

// `topology`: of a compiler; empty for a client.
extern "C" __attribute__((visibility("default"))) void tandem_load_pjrt(
    const std::string& path, const tandem::pjrt::Options& options, const std::string& topology,
    std::shared_ptr<tandem::pjrt::Client>* client) {
  using namespace tandem::pjrt;  // NOLINT: the module
  const Plugin& plugin = load_plugin(path);
  *client = topology.empty() ? make_client(plugin, options) : make_compiler(plugin, topology);
}
