// Sums of all ranks' elements, made of MPI's sends and receives alone, in the order of the ranks.
//
// Every rank gets its slice of a window from all others, combines it, and sends it to all that want
// it; the next window travels meanwhile.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "comm/process/scratch.h"
#include "tandem/dtype.h"
#include "tandem/reduce_op.h"

namespace tandem::mpi_backend {

// REQUIRES of all functions: the caller alone calls MPI.
class Reduction {
 public:
  struct Share {
    std::byte* data = nullptr;
    std::int64_t count = 0;  // elements
  };

  // `tag` and the next belong to it, among all ranks of the communicator.
  Reduction(MPI_Comm among, int tag, int rank, int size, Scratch& scratch, DType dtype,
            ReduceOp op);
  Reduction(const Reduction&) = delete;
  Reduction& operator=(const Reduction&) = delete;

  // One of these, once. Elements are combined in place, for all or for the root.
  void all_reduce(const Share& all);
  void reduce(const Share& all, int root);
  // Rank r gets share r; `result` may be this rank's.
  void reduce_scatter(const std::vector<Share>& shares, std::byte* result);

  // Does what can be done without waiting; whether it is complete. `steps` grows.
  bool advance(std::uint64_t& steps);
  // Calls off what can be; whether that was all.
  bool call_off() noexcept;

 private:
  struct Window {
    std::vector<Share> shares;  // by rank
    std::byte* result = nullptr;
    Scratch::Block others;  // what arrives, a share a rank
    std::vector<MPI_Request> received, sent;
  };

  // How a window of `count` elements from `begin` on is shared out.
  using Cut = std::function<Window(std::int64_t begin, std::int64_t end)>;
  void start(std::int64_t elements, std::int64_t step, Cut cut);
  void open_next();
  void combine(Window& window);
  void send_results(const Window& window);
  void post(std::vector<MPI_Request>& requests, bool sends, int peer, int phase,
            const Share& share);
  Share part(const Share& share, std::int64_t begin, std::int64_t end) const;
  std::size_t bytes(const Share& share) const {
    return static_cast<std::size_t>(share.count) * element_;
  }

  const MPI_Comm among_;
  const int tag_, rank_, size_;
  Scratch& scratch_;
  const DType dtype_;
  const ReduceOp op_;
  const std::size_t element_;
  bool gathers_ = false;  // all want all results
  Cut cut_;
  std::int64_t begin_ = 0, end_ = 0, step_ = 1;  // of what is not open yet
  std::deque<Window> open_;
  std::vector<MPI_Request> gathered_received_, gathered_sent_;
};

}  // namespace tandem::mpi_backend
