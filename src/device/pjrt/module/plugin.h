// A loaded plug-in: its library, its table of functions and its attributes.
#pragma once

#include <pjrt_c_api.h>

#include <string>

#include "device/pjrt/client.h"

namespace tandem::pjrt {

struct Plugin {
  const PJRT_Api* api = nullptr;
  PluginInfo info;  // without the platform, which the client knows
};

// Loads the library, checks its version and initialises it, once per process and path. See
// load_client() for the errors.
const Plugin& load_plugin(const std::string& path);

}  // namespace tandem::pjrt
