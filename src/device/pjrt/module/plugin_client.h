// The client of a plug-in.
#pragma once

#include <memory>

#include "device/pjrt/module/plugin.h"

namespace tandem::pjrt {

// Throws what check() throws if the plug-in refuses.
std::shared_ptr<Client> make_client(const Plugin& plugin, const Options& options);

}  // namespace tandem::pjrt
