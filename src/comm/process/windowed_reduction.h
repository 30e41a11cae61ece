// Sums of all ranks' elements, made of sends and receives between ranks, in the order of the ranks.
//
// Every rank receives its slice of a window from all others, combines it, and sends it to all that
// want it; the next window travels meanwhile. That is as little as any algorithm sends, in two
// steps whatever the number of ranks.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

#include "comm/process/scratch.h"
#include "comm/process/transfers.h"
#include "tandem/dtype.h"
#include "tandem/reduce_op.h"

namespace tandem {

// Elements of one dtype.
struct Share {
  std::byte* data = nullptr;
  std::int64_t count = 0;
};

struct ReductionOptions {
  int rank = 0, size = 1;
  DType dtype = float32;
  ReduceOp op = ReduceOp::kSum;
  std::int64_t window_bytes = 0;  // of all ranks' slices together
  // Of the transfers: the slices, and the combined slices.
  int scatter_phase = 0, gather_phase = 1;
};

class WindowedReduction {
 public:
  // `transfers` and `scratch` outlive it.
  WindowedReduction(Transfers& transfers, Scratch& scratch, const ReductionOptions& options);
  WindowedReduction(const WindowedReduction&) = delete;
  WindowedReduction& operator=(const WindowedReduction&) = delete;

  // One of these, once: starts what needs not wait. Elements are combined in place, for all ranks
  // or for the root.
  void all_reduce(const Share& all);
  void reduce(const Share& all, int root);
  // Rank r gets share r; `result` may be this rank's.
  void reduce_scatter(const std::vector<Share>& shares, std::byte* result);

  // Goes on as far as it can without waiting; whether the reduction is complete. `combines`: else
  // it stops before this rank combines anything. `steps` grows.
  bool advance(std::uint64_t& steps, bool combines = true);
  // Leaks the memory of transfers that cannot be ended.
  void keep_memory() noexcept;

 private:
  struct Window {
    std::vector<Share> slices;  // by rank
    std::byte* result = nullptr;
    Scratch::Block others;  // what arrives, a slice per rank
    TransferSet received;
    TransferSet sent;  // unless results may arrive where it is sent from
  };
  // The slices of the elements from `begin` to `end`.
  using Cut = std::function<void(Window& window, std::int64_t begin, std::int64_t end)>;

  void start(std::int64_t elements, std::int64_t step, Cut cut);
  void open_next();
  void combine(Window& window);
  void receive_results(const Window& window);
  void send_results(const Window& window);
  Share part(const Share& share, std::int64_t begin, std::int64_t end) const;
  std::size_t bytes(const Share& share) const {
    return static_cast<std::size_t>(share.count) * element_;
  }

  Transfers& transfers_;
  Scratch& scratch_;
  const ReductionOptions options_;
  const std::size_t element_;
  bool gathers_ = false;  // every rank wants every result
  Cut cut_;
  std::int64_t begin_ = 0, end_ = 0, step_ = 1;  // of what is not open yet
  std::deque<Window> open_;
  TransferSet results_;  // combined slices, to and from the others; and what is sent meanwhile
};

}  // namespace tandem
