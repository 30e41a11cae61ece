// The data of one collective, moved by transfers that nobody waits for.
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

// A rank's elements travel with its announcement where they are few and every rank wants them: half
// of the time of a small all-reduce is the announcement. So many bytes at most.
constexpr std::size_t kSmallBytes = 8 << 10;
// How many of this rank's bytes that are; 0: none.
std::size_t bytes_with_announcement(const Collective& collective);

// All functions throw Broken.
class DataExchange {
 public:
  // `scratch` and `collective` outlive it.
  DataExchange(gloo::transport::Context& context, const Collective& collective,
               const RankNames& names, Scratch& scratch);
  // What may be sent before the others have announced the same collective: no other collective
  // receives it.
  void start_early();
  // `small` is what came with the announcements, by rank. REQUIRES: they agree.
  void start(std::span<const std::byte* const> small);
  // Goes on as far as it can without waiting; whether all data is there. `steps` grows. REQUIRES:
  // start().
  bool advance(std::uint64_t& steps);
  bool waits_for(int peer) const { return transfers_.waits_for(peer); }

 private:
  WindowedReduction& reduction();
  void combine_small(std::span<const std::byte* const> small);
  void broadcast(const Share& all);
  void pass_on_slices(const Share& all);
  void all_gather(std::span<const std::byte* const> small);
  void all_to_all();
  void send_to_all(TransferSet& set, int phase, const Share& share);
  void send(TransferSet& set, int peer, int phase, const Share& share);
  void receive(TransferSet& set, int peer, int phase, const Share& share);
  std::size_t bytes(const Share& share) const;
  Share all() const { return {all_->data(), all_->count()}; }

  const Collective& collective_;
  const RankNames& names_;
  const int rank_, size_;
  Scratch& scratch_;
  GlooTransfers transfers_;
  std::optional<Contiguous> all_;  // the buffers of what works in place
  std::optional<WindowedReduction> reduction_;
  std::vector<ShareCounts> counts_;  // of all_to_all
  // Other collectives: these, then what `then_` starts.
  TransferSet first_, last_;
  std::function<void()> then_;
};

}  // namespace tandem::gloo_backend
