// A plug-in as a compiler for devices that this machine need not have.
#pragma once

#include <memory>
#include <string>

#include "device/pjrt/module/plugin.h"

namespace tandem::pjrt {

std::shared_ptr<Client> make_compiler(const Plugin& plugin, const std::string& topology);

}  // namespace tandem::pjrt
