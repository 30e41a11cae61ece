#include "comm/mpi/module/mpi_transfers.h"

#include "comm/mpi/module/session.h"

namespace tandem::mpi_backend {

Transfers::Id MpiTransfers::send(int peer, int phase, const std::byte* data, std::size_t bytes) {
  MpiTransfer& transfer = transfers_.emplace_back();
  transfer.sends = true;
  check(MPI_Isend(data, static_cast<int>(bytes), MPI_BYTE, peer, tag_ + phase, among_,
                  &transfer.request),
        "MPI_Isend");
  return transfers_.size() - 1;
}

Transfers::Id MpiTransfers::receive(int peer, int phase, std::byte* data, std::size_t bytes) {
  check(MPI_Irecv(data, static_cast<int>(bytes), MPI_BYTE, peer, tag_ + phase, among_,
                  &transfers_.emplace_back().request),
        "MPI_Irecv");
  return transfers_.size() - 1;
}

bool MpiTransfers::complete(Id id) {
  MPI_Request& request = transfers_[id].request;
  int done = 1;
  if (request != MPI_REQUEST_NULL) check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
  return done != 0;
}

bool MpiTransfers::cancel() noexcept {
  bool all = true;
  for (MpiTransfer& transfer : transfers_) {
    if (transfer.request == MPI_REQUEST_NULL) continue;
    int done = 0;
    if (!transfer.sends) MPI_Cancel(&transfer.request);
    all = MPI_Test(&transfer.request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && done && all;
  }
  return all;
}

}  // namespace tandem::mpi_backend
