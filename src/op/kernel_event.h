// Profile events of kernels.
#pragma once

#include <string>

#include "core/profile.h"
#include "op/op.h"

namespace tandem {

// The event of a run of `context`'s operation on `device`. `node`: its name in the graph, if any.
profile::Event kernel_event(const KernelContext& context, const DeviceImpl& device,
                            const std::string& node = {});

}  // namespace tandem
