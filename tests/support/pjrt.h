// The PJRT plug-ins of this machine.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "device/pjrt/client.h"
#include "support/built.h"
#include "support/expects.h"

namespace tandem::testing {

// The path of a plug-in: that of the environment variable, else one that scripts/setup --tpu has
// put into the build tree. Empty if there is none, or if this build has no PJRT.
inline std::string plugin_path(const char* variable, const char* file) {
  if (!built_module("pjrt")) return {};
  if (const char* set = std::getenv(variable); set && *set) return set;
  const auto path = std::filesystem::path(TANDEM_SOURCE_DIR "/build/pjrt") / file;
  return std::filesystem::exists(path) ? path.string() : std::string();
}
inline std::string first_plugin() { return plugin_path("TANDEM_PJRT_PLUGIN", "xla_cpu_pjrt.so"); }
// One that was built with a later version of the PJRT C API.
inline std::string second_plugin() {
  return plugin_path("TANDEM_SECOND_PJRT_PLUGIN", "pjrt_c_api_cpu_plugin.so");
}

// A client of a plug-in, one per path and process.
inline pjrt::Client& client_of(const std::string& path) {
  static std::map<std::string, std::shared_ptr<pjrt::Client>> clients;
  std::shared_ptr<pjrt::Client>& client = clients[path];
  if (!client) client = pjrt::load_client(path, {});
  return *client;
}

}  // namespace tandem::testing
