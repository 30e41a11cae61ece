// A compiled program of a plug-in.
#pragma once

#include <pjrt_c_api.h>

#include <memory>
#include <string>

#include "device/pjrt/module/plugin_client.h"

namespace tandem::pjrt {

// A serialised CompileOptionsProto of XLA. Throws InvalidArgumentError for devices that do not exist
// or appear twice.
std::string compile_options_proto(const PluginClient& client, const CompileOptions& options);

// Takes over `handle`. Throws InternalError if the program has another number of results than the
// options say.
std::unique_ptr<Executable> make_executable(std::shared_ptr<const PluginClient> client,
                                            PJRT_LoadedExecutable* handle,
                                            const CompileOptions& options);

}  // namespace tandem::pjrt
