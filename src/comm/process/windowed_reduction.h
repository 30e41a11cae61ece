// Deterministic reductions made of sends and receives; sums are in the order of the ranks.
//
// The elements are processed in windows. In each window every rank receives its slice from all
// others, reduces it, and sends the result to the ranks that need it; the next window is in flight
// meanwhile. This sends the minimum number of bytes, in two phases whatever the number of ranks.
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

// A run of elements of the reduction's dtype.
struct ElementSpan {
  std::byte* data = nullptr;
  std::int64_t count = 0;
};

struct ReductionOptions {
  int rank = 0, size = 1;
  DType dtype = float32;
  ReduceOp op = ReduceOp::kSum;
  std::int64_t window_bytes = 0;  // per window, all ranks' slices together
  // The phases of the transfers: unreduced slices, and reduced slices.
  int scatter_phase = 0, gather_phase = 0;
};

class WindowedReduction {
 public:
  // `transfers` and `scratch` must outlive it.
  WindowedReduction(Transfers& transfers, Scratch& scratch, const ReductionOptions& options);
  WindowedReduction(const WindowedReduction&) = delete;
  WindowedReduction& operator=(const WindowedReduction&) = delete;

  // Call one of these once. It starts the reduction without blocking. Elements are reduced in
  // place, on all ranks or on the root.
  void all_reduce(const ElementSpan& all);
  void reduce(const ElementSpan& all, int root);
  // Rank r receives the reduction of shares[r]. `result` may be this rank's element of `shares`.
  void reduce_scatter(const std::vector<ElementSpan>& shares, std::byte* result);

  // Makes progress without waiting; returns whether the reduction is complete. Increments `steps`
  // for each step done.
  bool advance(std::uint64_t& steps);

 private:
  struct Window {
    std::vector<ElementSpan> slices;  // by rank
    std::byte* result = nullptr;
    Scratch::Block others;  // received slices, one per rank
    TransferSet received;
    TransferSet sent;  // the slices sent, if results must not arrive in their memory
  };
  // Sets the slices of a window to the elements from `begin` to `end`.
  using Cut = std::function<void(Window& window, std::int64_t begin, std::int64_t end)>;

  void start(std::int64_t elements, std::int64_t step, Cut cut);
  void open_next();
  void combine(Window& window);
  void receive_results(const Window& window);
  void send_results(const Window& window);
  ElementSpan part(const ElementSpan& share, std::int64_t begin, std::int64_t end) const;
  std::size_t bytes(const ElementSpan& share) const {
    return static_cast<std::size_t>(share.count) * element_;
  }

  Transfers& transfers_;
  Scratch& scratch_;
  const ReductionOptions options_;
  const std::size_t element_;
  bool gathers_ = false;  // every rank receives every result
  Cut cut_;
  std::int64_t begin_ = 0, end_ = 0, step_ = 1;  // the elements of windows not yet opened
  std::deque<Window> open_;
  TransferSet results_;  // transfers of reduced slices, and sends of slices in place
};

}  // namespace tandem
