// The workers of a job, and how they go on when a process has failed.
#pragma once

#include <memory>

#include "comm/rendezvous/rendezvous.h"

namespace tandem {

// The job of the workers that are there: numbered anew in the order of their ranks, with a part of
// the store of its own. They make communicators of it. Every worker calls this, once when the job
// begins where not all of its processes are workers, and once when membership()->failed(), with no
// communicator left of the epoch before. Where another one fails meanwhile, those that wait for it
// fail again, and call this again; one that leaves meanwhile is missed at the time limit.
//
// Throws FailedPreconditionError when this process is no worker, or no process has failed since the
// last call, and what the membership does when the rendezvous itself is gone.
std::unique_ptr<Job> worker_job(const std::shared_ptr<Job>& job);

}  // namespace tandem
