#include "comm/process/windowed_reduction.h"

#include <algorithm>
#include <utility>

#include "comm/combine.h"

namespace tandem {
namespace {

std::size_t index(int rank) { return static_cast<std::size_t>(rank); }

}  // namespace

WindowedReduction::WindowedReduction(Transfers& transfers, Scratch& scratch,
                                     const ReductionOptions& options)
    : transfers_(transfers),
      scratch_(scratch),
      options_(options),
      element_(size_of(options.dtype)),
      results_(transfers) {}

void WindowedReduction::all_reduce(const ElementSpan& all) {
  gathers_ = true;
  start(all.count, options_.window_bytes / static_cast<std::int64_t>(element_),
        [this, all](Window& window, std::int64_t begin, std::int64_t end) {
          const std::int64_t count = end - begin, size = options_.size;
          for (std::int64_t rank = 0; rank < size; ++rank)
            window.slices.push_back(
                part(all, begin + count * rank / size, begin + count * (rank + 1) / size));
          window.result = window.slices[index(options_.rank)].data;
        });
}

void WindowedReduction::reduce(const ElementSpan& all, int root) {
  std::vector<ElementSpan> shares(index(options_.size));
  shares[index(root)] = all;
  reduce_scatter(shares, all.data);
}

void WindowedReduction::reduce_scatter(const std::vector<ElementSpan>& shares, std::byte* result) {
  std::int64_t most = 0;
  for (const ElementSpan& share : shares) most = std::max(most, share.count);
  start(most, options_.window_bytes / static_cast<std::int64_t>(element_) / options_.size,
        [this, shares, result](Window& window, std::int64_t begin, std::int64_t end) {
          for (const ElementSpan& share : shares) window.slices.push_back(part(share, begin, end));
          window.result = result ? result + static_cast<std::size_t>(begin) * element_ : nullptr;
        });
}

void WindowedReduction::start(std::int64_t elements, std::int64_t step, Cut cut) {
  cut_ = std::move(cut);
  end_ = elements;
  step_ = std::max<std::int64_t>(step, 1);
  open_next();
  open_next();
}

void WindowedReduction::open_next() {
  if (begin_ == end_) return;
  const std::int64_t end = std::min(end_, begin_ + step_);
  Window& window = open_.emplace_back(
      Window{.received = TransferSet(transfers_), .sent = TransferSet(transfers_)});
  cut_(window, begin_, end);
  begin_ = end;
  const ElementSpan& mine = window.slices[index(options_.rank)];
  window.others = scratch_.take(bytes(mine) * index(options_.size));
  for (int peer = 0; peer < options_.size; ++peer)
    if (peer != options_.rank)
      window.received.receive(peer, options_.scatter_phase,
                              window.others.get() + bytes(mine) * index(peer), bytes(mine));
  if (gathers_ && transfers_.receives_into_sent()) receive_results(window);
  TransferSet& sent = transfers_.receives_into_sent() ? results_ : window.sent;
  for (int peer = 0; peer < options_.size; ++peer)
    if (peer != options_.rank)
      sent.send(peer, options_.scatter_phase, window.slices[index(peer)].data,
                bytes(window.slices[index(peer)]));
}

bool WindowedReduction::advance(std::uint64_t& steps) {
  while (!open_.empty()) {
    Window& window = open_.front();
    // Results arrive in the memory of the slices sent, so the sends must be complete.
    if (!window.received.complete() || !window.sent.complete()) return false;
    combine(window);
    if (gathers_) {
      if (!transfers_.receives_into_sent()) receive_results(window);
      send_results(window);
    }
    open_.pop_front();
    open_next();
    ++steps;
  }
  return results_.complete();
}

void WindowedReduction::combine(Window& window) {
  const ElementSpan& mine = window.slices[index(options_.rank)];
  if (mine.count == 0) return;
  std::vector<const void*> inputs;
  for (int rank = 0; rank < options_.size; ++rank)
    inputs.push_back(rank == options_.rank ? mine.data
                                           : window.others.get() + bytes(mine) * index(rank));
  void* const output = window.result;
  tandem::combine(inputs, {&output, 1}, mine.count, options_.dtype, options_.op,
                  CombineOrder::kInOrder);
}

void WindowedReduction::receive_results(const Window& window) {
  for (int peer = 0; peer < options_.size; ++peer)
    if (peer != options_.rank)
      results_.receive(peer, options_.gather_phase, window.slices[index(peer)].data,
                       bytes(window.slices[index(peer)]));
}

void WindowedReduction::send_results(const Window& window) {
  const ElementSpan& mine = window.slices[index(options_.rank)];
  for (int peer = 0; peer < options_.size; ++peer)
    if (peer != options_.rank) results_.send(peer, options_.gather_phase, mine.data, bytes(mine));
}

ElementSpan WindowedReduction::part(const ElementSpan& share, std::int64_t begin,
                                    std::int64_t end) const {
  begin = std::min(begin, share.count);
  end = std::min(end, share.count);
  if (begin == end) return {};
  return {share.data + static_cast<std::size_t>(begin) * element_, end - begin};
}

}  // namespace tandem
