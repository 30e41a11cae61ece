// Buckets as tensors, for communication hooks.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "group/process_group_impl.h"
#include "sync/gradient_transport.h"
#include "tandem/ddp.h"

namespace tandem::parallel {

// A transport whose buckets `hook` reduces. `parameters`: in the order of the gradients.
std::shared_ptr<CommunicatorTransport> make_hook_transport(
    CommHook hook, DeviceImpl& device, std::vector<Variable> parameters,
    std::shared_ptr<comm::ProcessGroupImpl> group);

// Throws InvalidArgumentError if a hook returned tensors that differ from the parameters in
// number, shape or dtype.
void check_combined(const std::vector<Tensor>& combined, std::span<const Variable> parameters,
                    std::size_t bucket);

}  // namespace tandem::parallel
