// Buckets as tensors, for communication hooks.
#pragma once

#include <memory>
#include <vector>

#include "comm/reducer.h"
#include "group/process_group_impl.h"
#include "tandem/ddp.h"

namespace tandem::parallel {

// Calls `hook` with the reducer's buckets. `parameters`: in the order of the reducer's gradients.
std::shared_ptr<BucketHook> make_tensor_hook(CommHook hook, Device& device,
                                             std::vector<Variable> parameters,
                                             std::shared_ptr<comm::ProcessGroupImpl> group);

}  // namespace tandem::parallel
