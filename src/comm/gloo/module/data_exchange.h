// Moves the data of one collective with non-blocking transfers.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "comm/gloo/module/gloo_transfers.h"
#include "comm/process/announcement.h"
#include "comm/process/backend.h"
#include "comm/process/contiguous.h"
#include "comm/process/windowed_reduction.h"

namespace tandem::gloo_backend {

// The maximum bytes of data in an announcement. Small data is sent in it if every rank needs the
// data, because the announcement takes half of the time of a small all-reduce.
constexpr std::size_t kSmallBytes = 8 << 10;
// The number of this rank's bytes that are sent in the announcement; may be 0.
std::size_t bytes_with_announcement(const Collective& collective);

// All functions throw Broken.
class DataExchange {
 public:
  // `scratch` and `collective` must outlive it.
  DataExchange(gloo::transport::Context& context, const Collective& collective,
               const RankNames& names, Scratch& scratch);
  // Starts the transfers that need no agreement, because only the same collective on the other
  // ranks can receive them.
  void start_early();
  // `small`: by rank, the data in the announcements. REQUIRES: the announcements match.
  void start(std::span<const std::byte* const> small);
  // Makes progress without waiting; returns whether all data has arrived. Increments `steps`.
  // REQUIRES: start().
  bool advance(std::uint64_t& steps);
  bool waits_for(int peer) const { return transfers_.waits_for(peer); }

 private:
  WindowedReduction& reduction();
  void combine_small(std::span<const std::byte* const> small);
  void broadcast(const ElementSpan& all);
  void pass_on_slices(const ElementSpan& all);
  void all_gather(std::span<const std::byte* const> small);
  void all_to_all();
  void send_to_all(TransferSet& set, int phase, const ElementSpan& share);
  void send(TransferSet& set, int peer, int phase, const ElementSpan& share);
  void receive(TransferSet& set, int peer, int phase, const ElementSpan& share);
  std::size_t bytes(const ElementSpan& share) const;
  ElementSpan all() const { return {all_->data(), all_->count()}; }

  const Collective& collective_;
  const RankNames& names_;
  const int rank_, size_;
  Scratch& scratch_;
  GlooTransfers transfers_;
  std::optional<Contiguous> all_;  // the buffers of an in-place collective
  std::optional<WindowedReduction> reduction_;
  std::vector<TransferCounts> counts_;  // of all_to_all
  // Other collectives: these transfers, then those that `then_` starts.
  TransferSet first_, last_;
  std::function<void()> then_;
};

}  // namespace tandem::gloo_backend
