// Non-blocking sends and receives through Gloo.
#pragma once

#include <gloo/transport/context.h>
#include <gloo/transport/unbound_buffer.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <string>

#include "comm/process/transfers.h"

namespace tandem::gloo_backend {

// Gloo slots: a send matches a receive of the same slot, in order. A collective has four phases,
// and 24 bits that keep mismatched calls apart.
constexpr std::uint64_t collective_slot(std::uint64_t sequence, std::uint64_t call = 0) {
  return call << 38 | (sequence << 2) % (std::uint64_t{1} << 38);
}
constexpr std::uint64_t kMessageSlots = std::uint64_t{1} << 62;
constexpr std::uint64_t kSentinelSlot = std::uint64_t{1} << 63;

// The connection to a rank broke.
struct Broken {
  int peer = 0;
  std::string reason;
};

// Whether a send or receive is complete; Gloo itself only offers a blocking wait. Throws the error
// with which the connection broke.
bool is_complete(gloo::transport::UnboundBuffer& buffer, bool sends);

// Functions throw Broken unless they are noexcept.
class GlooTransfers final : public Transfers {
 public:
  // Phase p uses the slot `slot` + p.
  GlooTransfers(gloo::transport::Context& context, std::uint64_t slot)
      : context_(context), slot_(slot) {}

  // Changes the slot of transfers that start from now on.
  void renumber(std::uint64_t slot) { slot_ = slot; }
  Id send(int peer, int phase, const std::byte* data, std::size_t bytes) override;
  Id receive(int peer, int phase, std::byte* data, std::size_t bytes) override;
  bool complete(Id id) override;
  bool receives_into_sent() const override { return true; }

  // As complete(), but returns false for a transfer whose connection broke.
  bool has_arrived(Id id) const noexcept;
  // Whether a transfer with the rank is incomplete. A complete one does not count, even before
  // complete() was called for it: the rank may have left in the meantime.
  bool waits_for(int peer) const noexcept;

 private:
  // The destructor ends Gloo's use of the memory.
  struct GlooTransfer {
    std::unique_ptr<gloo::transport::UnboundBuffer> buffer;  // null: complete
    int peer = 0;
    bool sends = false;
  };
  template <class Start>
  Id start(int peer, bool sends, void* data, std::size_t bytes, Start start);

  gloo::transport::Context& context_;
  std::uint64_t slot_;
  std::deque<GlooTransfer> transfers_;
};

}  // namespace tandem::gloo_backend
