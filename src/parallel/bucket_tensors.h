// Buckets as tensors, for communication hooks.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "group/process_group_impl.h"
#include "sync/reducer.h"
#include "tandem/ddp.h"

namespace tandem::parallel {

// Calls `hook` with the reducer's buckets. `parameters`: in the order of the reducer's gradients.
std::shared_ptr<BucketHook> make_tensor_hook(CommHook hook, Device& device,
                                             std::vector<Variable> parameters,
                                             std::shared_ptr<comm::ProcessGroupImpl> group);

// Throws InvalidArgumentError where a hook did not give a tensor like each parameter.
void check_combined(const std::vector<Tensor>& combined, std::span<const Variable> parameters,
                    std::size_t bucket);

}  // namespace tandem::parallel
