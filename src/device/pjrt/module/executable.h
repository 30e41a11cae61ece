// A compiled program of a plug-in.
#pragma once

#include <pjrt_c_api.h>

#include <memory>
#include <string>
#include <vector>

#include "device/pjrt/module/client_handle.h"

namespace tandem::pjrt {

// A serialised CompileOptionsProto of XLA. Throws InvalidArgumentError for devices that are not
// among `devices` or appear twice.
std::string compile_options_proto(const PluginInfo& plugin, const std::vector<DeviceInfo>& devices,
                                  const CompileOptions& options);
// StableHLO text. Refers to `code`.
PJRT_Program program_of(std::string& code);

// These return what a plug-in tells of a compiled program.
CompiledMemory memory_of(const PJRT_Api& api, PJRT_Executable* executable);
double flops_of(const PJRT_Api& api, PJRT_Executable* executable);

// Takes over `handle`. Throws InternalError if the program has another number of results than the
// options say.
std::unique_ptr<Executable> make_executable(std::shared_ptr<const ClientHandle> client,
                                            PJRT_LoadedExecutable* handle,
                                            const CompileOptions& options);

}  // namespace tandem::pjrt
