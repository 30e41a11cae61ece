// From a job to a communicator of all its ranks.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "comm/communicator.h"
#include "comm/rendezvous/rendezvous.h"

namespace tandem {

struct ConnectOptions {
  // "shm", "gloo", "mpi", "hierarchical", "nccl"; "auto": shm when every rank is on one
  // host; hierarchical when some host has several; else, or with a warning where /dev/shm is too
  // small for several groups, mpi under mpirun, else gloo. hierarchical is shm inside the hosts,
  // and mpi under mpirun or gloo between them.
  std::string backend = "auto";
  std::chrono::milliseconds time_limit = std::chrono::minutes(30);  // of this and of every wait
};

// Throws InvalidArgumentError for a name that is no backend's.
void check_backend(const std::string& name);

// The backend that `options` mean. Every rank of the job calls this, as often and in the same order
// as all others; every one gets the same. Throws as check_backend() does.
std::string choose_backend(Job& job, const ConnectOptions& options);

// This rank's end of a communicator of all of the job's ranks, on `device`. Called as
// choose_backend() is. Throws as the backends do: DeadlineExceededError that names the ranks which
// did not come, UnavailableError when the backend's library is missing or the ranks cannot reach
// each other, FailedPreconditionError when the ranks were not started as the backend needs it.
std::unique_ptr<Communicator> connect(Job& job, Device& device, const ConnectOptions& options = {});

}  // namespace tandem
