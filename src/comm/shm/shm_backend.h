// The backend for processes of one host, through shared memory.
#pragma once

#include <memory>

#include "comm/process/backend.h"
#include "comm/process/group_options.h"

namespace tandem {

// Waits until every rank has called this. Throws DeadlineExceededError with the missing ranks,
// UnavailableError if the ranks are on different hosts, ResourceExhaustedError if there is not
// enough shared memory. When one rank throws, all throw the same error at once.
std::unique_ptr<Backend> make_shm_backend(GroupOptions options);

}  // namespace tandem
