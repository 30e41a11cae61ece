// Creates a communicator of all ranks of a job.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "comm/communicator.h"
#include "comm/rendezvous/rendezvous.h"

namespace tandem {

struct ConnectOptions {
  // "shm", "gloo", "mpi", "nccl", "hierarchical" or "auto". If the job has a transport: "shm",
  // "transport", "hierarchical" or "auto".
  // hierarchical: shm inside the hosts; between them mpi under mpirun, otherwise gloo.
  // auto: shm if all ranks are on one host; hierarchical if some host has several ranks; otherwise
  // mpi under mpirun, else gloo. The last rule also applies, with a warning, if /dev/shm is too
  // small.
  std::string backend = "auto";
  // for connect() and for each wait
  std::chrono::milliseconds time_limit = std::chrono::minutes(30);
};

// A device for the ranks' messages, apart from those that the program may still configure.
DeviceImpl& host_memory();

// Throws InvalidArgumentError if there is no backend of that name.
void check_backend(const std::string& name);

// Resolves "auto", and checks that all ranks ask for one backend. A collective call: every rank of
// the job makes it in the same order and gets the same result. Throws as check_backend() does;
// InvalidArgumentError if ranks ask for different backends; FailedPreconditionError if a rank
// cannot use it; AbortedError if a rank has left.
std::string choose_backend(Job& job, const ConnectOptions& options);

// Creates this rank's communicator of all of the job's ranks, on `device`. A collective call.
// Throws as the backends do: DeadlineExceededError with the ranks that did not join,
// UnavailableError if the backend's library is missing or ranks cannot reach each other,
// FailedPreconditionError if the ranks were not launched as the backend requires. The others throw
// AbortedError with a rank's error.
std::unique_ptr<Communicator> connect(Job& job, DeviceImpl& device,
                                      const ConnectOptions& options = {});

}  // namespace tandem
