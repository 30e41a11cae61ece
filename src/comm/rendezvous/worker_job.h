// The workers of a job, and how they continue when a process has failed.
#pragma once

#include <memory>

#include "comm/rendezvous/rendezvous.h"

namespace tandem {

// The job of the workers that have not failed, for new communicators. Ranks are renumbered in their
// order, and the job uses its own part of the store. A collective call of all workers: once when
// the job begins, if some processes are not workers, and again whenever membership()->failed(),
// after all communicators of the previous epoch have been destroyed. If another worker fails
// meanwhile, waits on it fail and the workers call this again. A worker that leaves meanwhile
// causes a timeout.
//
// Throws FailedPreconditionError if this process is not a worker or no process has failed since the
// last call, and the membership's error if the rendezvous server is gone.
std::unique_ptr<Job> worker_job(const std::shared_ptr<Job>& job);

}  // namespace tandem
