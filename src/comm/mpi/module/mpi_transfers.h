// Non-blocking sends and receives through MPI.
#pragma once

#include <mpi.h>

#include <vector>

#include "comm/process/transfers.h"

namespace tandem::mpi_backend {

// REQUIRES for all functions: no other thread calls MPI; at most INT_MAX bytes per transfer.
class MpiTransfers final : public Transfers {
 public:
  // Phase p uses the tag `tag` + p between all ranks of the communicator.
  MpiTransfers(MPI_Comm among, int tag) : among_(among), tag_(tag) {}

  Id send(int peer, int phase, const std::byte* data, std::size_t bytes) override;
  Id receive(int peer, int phase, std::byte* data, std::size_t bytes) override;
  bool complete(Id id) override;
  // MPI must not write to memory that it is still sending.
  bool receives_into_sent() const override { return false; }

  // Cancels the receives. Returns whether MPI no longer uses any of the memory.
  bool cancel() noexcept;

 private:
  struct MpiTransfer {
    MPI_Request request = MPI_REQUEST_NULL;  // null: complete
    bool sends = false;
  };
  const MPI_Comm among_;
  const int tag_;
  std::vector<MpiTransfer> transfers_;
};

}  // namespace tandem::mpi_backend
