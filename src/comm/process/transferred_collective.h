// Moves the data of one collective or message, by sends and receives between pairs of ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "comm/process/announcement.h"
#include "comm/process/backend.h"
#include "comm/process/scratch.h"
#include "comm/process/transfers.h"

namespace tandem {

// Ranks exchange announcements first. Data of at most `limit` bytes is sent in the announcement, if
// every rank needs it, because the announcement takes half of the time of a small all-reduce.
//
// The bytes of `rank`'s data that are sent in its announcement; may be 0.
std::size_t bytes_with_announcement(const Collective& collective, int rank, std::size_t limit);
// Writes the announcement of this rank, and the data that is sent in it. Returns the bytes.
std::size_t write_announcement(const Collective& collective, int rank, std::size_t limit,
                               std::byte* to);
// Throws InvalidArgumentError, the same on every rank, when the calls do not match.
// `announcements`: by rank, as write_announcement() writes them.
void check_announcements(const Collective& collective,
                         std::span<const std::byte* const> announcements, const RankNames& names);

struct TransferOptions {
  int rank = 0, size = 1;
  std::int64_t window_bytes = 0;  // per window of a reduction, all ranks' slices together
  std::size_t small_limit = 0;    // of bytes_with_announcement()
};

// A run of elements of the collective's dtype.
struct ElementSpan {
  std::byte* data = nullptr;
  std::int64_t count = 0;
};

// Contiguous memory for several buffers of one dtype: their own if they are contiguous, otherwise a
// copy.
class Contiguous {
 public:
  explicit Contiguous(std::span<const Buffer> buffers);

  std::byte* data() const { return data_; }
  std::int64_t count() const { return count_; }  // elements

  // If there is a copy: copies from the buffers to it, or from it to the buffers.
  void gather() const;
  void scatter() const;

 private:
  std::span<const Buffer> buffers_;
  std::byte* data_ = nullptr;
  std::int64_t count_ = 0;
  std::unique_ptr<std::byte[]> copy_;
};

class WindowedReduction;

// All functions throw what the transfers throw.
class TransferredCollective {
 public:
  // Its transfers have the phases below this one. It has none of phase 0, which is free for the
  // announcements.
  static constexpr int kPhases = 4;

  // The references must outlive it.
  TransferredCollective(Transfers& transfers, const Collective& collective, const RankNames& names,
                        Scratch& scratch, const TransferOptions& options);
  ~TransferredCollective();
  // Starts an all-reduce before the announcements have arrived. REQUIRES: only the same collective
  // on the other ranks can receive these transfers.
  void start_early();
  // REQUIRES: the announcements match; `announcements`: see check_announcements().
  void start(std::span<const std::byte* const> announcements);
  // Makes progress without waiting; returns whether all data has arrived. Increments `steps`.
  // REQUIRES: start().
  bool advance(std::uint64_t& steps);

 private:
  bool sends_small() const;
  WindowedReduction& reduction();
  void all_reduce();
  void combine_small(std::span<const std::byte* const> announcements);
  void broadcast(const ElementSpan& all);
  void pass_on_slices(const ElementSpan& all);
  void all_gather(std::span<const std::byte* const> announcements);
  void all_to_all();
  void send_to_all(TransferSet& set, int phase, const ElementSpan& share);
  void send(TransferSet& set, int peer, int phase, const ElementSpan& share);
  void receive(TransferSet& set, int peer, int phase, const ElementSpan& share);
  std::size_t bytes(const ElementSpan& share) const;
  void gather() {
    all_.emplace(collective_.in);
    all_->gather();
  }
  ElementSpan all() const { return {all_->data(), all_->count()}; }

  Transfers& transfers_;
  const Collective& collective_;
  const RankNames& names_;
  Scratch& scratch_;
  const TransferOptions options_;
  const int rank_, size_;
  std::optional<Contiguous> all_;  // the buffers of an in-place collective
  std::unique_ptr<WindowedReduction> reduction_;
  std::vector<TransferCounts> counts_;  // of all_to_all
  // Other collectives: these transfers, then those that `then_` starts.
  TransferSet first_, last_;
  std::function<void()> then_;
};

// First sends the number and type of the elements, which the receiver compares with its own. Uses
// the phases 0 and 1.
class TransferredMessage {
 public:
  // The references must outlive it. `rank`: this one.
  TransferredMessage(Transfers& transfers, const Collective& collective, int rank,
                     const RankNames& names)
      : collective_(collective), rank_(rank), names_(names), first_(transfers), data_(transfers) {}
  // The first call starts it. Returns whether it is complete. Increments `steps`.
  bool advance(std::uint64_t& steps);

 private:
  const Collective& collective_;
  const int rank_;
  const RankNames& names_;
  MessageHeader header_;
  TransferSet first_, data_;
  bool started_ = false, compared_ = false;
};

}  // namespace tandem
