// What a profile tells of a kernel.
#pragma once

#include <string>

#include "core/profile.h"
#include "op/op.h"

namespace tandem {

// Of the run of `context`'s operation on `device`; `node`: its name in the graph, if it has one.
profile::Event kernel_event(const KernelContext& context, const Device& device,
                            const std::string& node = {});

}  // namespace tandem
