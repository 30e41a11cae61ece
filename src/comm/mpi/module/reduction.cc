#include "comm/mpi/module/reduction.h"

#include <algorithm>

#include "comm/combine.h"
#include "comm/mpi/module/session.h"

namespace tandem::mpi_backend {
namespace {

constexpr int kScatter = 0, kGather = 1;
constexpr std::int64_t kWindowBytes = 4 << 20;  // of all ranks' shares together

bool all_done(std::vector<MPI_Request>& requests) {
  if (requests.empty()) return true;
  int done = 0;
  check(MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE),
        "MPI_Testall");
  if (done) requests.clear();
  return done != 0;
}

}  // namespace

Reduction::Reduction(MPI_Comm among, int tag, int rank, int size, Scratch& scratch, DType dtype,
                     ReduceOp op)
    : among_(among),
      tag_(tag),
      rank_(rank),
      size_(size),
      scratch_(scratch),
      dtype_(dtype),
      op_(op),
      element_(size_of(dtype)) {}

void Reduction::all_reduce(const Share& all) {
  gathers_ = true;
  start(all.count, kWindowBytes / static_cast<std::int64_t>(element_),
        [this, all](std::int64_t begin, std::int64_t end) {
          Window window;
          const std::int64_t count = end - begin;
          for (int rank = 0; rank < size_; ++rank)
            window.shares.push_back(
                part(all, begin + count * rank / size_, begin + count * (rank + 1) / size_));
          window.result = window.shares[static_cast<std::size_t>(rank_)].data;
          return window;
        });
}

void Reduction::reduce(const Share& all, int root) {
  std::vector<Share> shares(static_cast<std::size_t>(size_));
  shares[static_cast<std::size_t>(root)] = all;
  reduce_scatter(shares, all.data);
}

void Reduction::reduce_scatter(const std::vector<Share>& shares, std::byte* result) {
  std::int64_t most = 0;
  for (const Share& share : shares) most = std::max(most, share.count);
  start(most, kWindowBytes / static_cast<std::int64_t>(element_) / size_,
        [this, shares, result](std::int64_t begin, std::int64_t end) {
          Window window;
          for (const Share& share : shares) window.shares.push_back(part(share, begin, end));
          window.result = result ? result + static_cast<std::size_t>(begin) * element_ : nullptr;
          return window;
        });
}

void Reduction::start(std::int64_t elements, std::int64_t step, Cut cut) {
  cut_ = std::move(cut);
  end_ = elements;
  step_ = std::max<std::int64_t>(step, 1);
  open_next();
  open_next();
}

void Reduction::open_next() {
  if (begin_ == end_) return;
  const std::int64_t end = std::min(end_, begin_ + step_);
  Window& window = open_.emplace_back(cut_(begin_, end));
  begin_ = end;
  const Share& mine = window.shares[static_cast<std::size_t>(rank_)];
  const std::size_t size = bytes(mine);
  window.others = scratch_.take(size * static_cast<std::size_t>(size_));
  for (int peer = 0; peer < size_; ++peer)
    post(window.received, false, peer, kScatter,
         {window.others.get() + size * static_cast<std::size_t>(peer), mine.count});
  for (int peer = 0; peer < size_; ++peer)
    post(window.sent, true, peer, kScatter, window.shares[static_cast<std::size_t>(peer)]);
}

bool Reduction::advance(std::uint64_t& steps) {
  while (!open_.empty()) {
    Window& window = open_.front();
    if (!window.received.empty()) {
      if (!all_done(window.received)) return false;
      ++steps;
    }
    // Results of others arrive where their shares were, which have to be gone by then.
    if (!all_done(window.sent)) return false;
    combine(window);
    if (gathers_) send_results(window);
    open_.pop_front();
    open_next();
    ++steps;
  }
  return all_done(gathered_received_) && all_done(gathered_sent_);
}

void Reduction::combine(Window& window) {
  const Share& mine = window.shares[static_cast<std::size_t>(rank_)];
  if (mine.count == 0) return;
  std::vector<const void*> inputs;
  for (int rank = 0; rank < size_; ++rank)
    inputs.push_back(rank == rank_
                         ? mine.data
                         : window.others.get() + bytes(mine) * static_cast<std::size_t>(rank));
  void* const output = window.result;
  tandem::combine(inputs, {&output, 1}, mine.count, dtype_, op_, CombineOrder::kInOrder);
}

void Reduction::send_results(const Window& window) {
  for (int peer = 0; peer < size_; ++peer) {
    post(gathered_received_, false, peer, kGather, window.shares[static_cast<std::size_t>(peer)]);
    post(gathered_sent_, true, peer, kGather, window.shares[static_cast<std::size_t>(rank_)]);
  }
}

// A share is at most a window, which MPI can count.
void Reduction::post(std::vector<MPI_Request>& requests, bool sends, int peer, int phase,
                     const Share& share) {
  if (peer == rank_ || share.count == 0) return;
  MPI_Request& request = requests.emplace_back(MPI_REQUEST_NULL);
  const auto size = static_cast<int>(bytes(share));
  if (sends)
    check(MPI_Isend(share.data, size, MPI_BYTE, peer, tag_ + phase, among_, &request), "MPI_Isend");
  else
    check(MPI_Irecv(share.data, size, MPI_BYTE, peer, tag_ + phase, among_, &request), "MPI_Irecv");
}

bool Reduction::call_off() noexcept {
  bool all = true;
  const auto call_off = [&](std::vector<MPI_Request>& requests, bool receives) {
    for (MPI_Request& request : requests) {
      if (request == MPI_REQUEST_NULL) continue;
      int done = 0;
      if (receives) MPI_Cancel(&request);
      all = MPI_Test(&request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && done && all;
    }
  };
  for (Window& window : open_) {
    call_off(window.received, true);
    call_off(window.sent, false);
    // What MPI may yet write to is not given back.
    if (!all) static_cast<void>(window.others.release());
  }
  call_off(gathered_received_, true);
  call_off(gathered_sent_, false);
  return all;
}

Reduction::Share Reduction::part(const Share& share, std::int64_t begin, std::int64_t end) const {
  begin = std::min(begin, share.count);
  end = std::min(end, share.count);
  if (begin == end) return {};
  return {share.data + static_cast<std::size_t>(begin) * element_, end - begin};
}

}  // namespace tandem::mpi_backend
