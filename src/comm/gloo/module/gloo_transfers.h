// Sends and receives through Gloo that nobody waits for.
#pragma once

#include <gloo/transport/context.h>
#include <gloo/transport/unbound_buffer.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <string>

#include "comm/process/transfers.h"

namespace tandem::gloo_backend {

// Numbers of sends and receives: those of one number meet, in order. Collectives have four phases,
// and 24 bits to tell calls apart that are not the same.
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

// Whether a send, or a receive, is complete, which Gloo tells only those that wait. Throws what the
// connection broke with.
bool is_complete(gloo::transport::UnboundBuffer& buffer, bool sends);

// Functions throw Broken unless they are noexcept.
class GlooTransfers final : public Transfers {
 public:
  // Phase p of them has the number `slot` + p.
  GlooTransfers(gloo::transport::Context& context, std::uint64_t slot)
      : context_(context), slot_(slot) {}

  // Of those that start from now on.
  void renumber(std::uint64_t slot) { slot_ = slot; }
  Id send(int peer, int phase, const std::byte* data, std::size_t bytes) override;
  Id receive(int peer, int phase, std::byte* data, std::size_t bytes) override;
  bool complete(Id id) override;
  bool receives_into_sent() const override { return true; }

  // The same as complete(), of a transfer whose connection may have broken: then it is not.
  bool has_arrived(Id id) const noexcept;
  // Whether a transfer with the rank is not complete. One that is, though complete() has not been
  // asked, does not count: the rank may have left since.
  bool waits_for(int peer) const noexcept;

 private:
  // Destroying it ends what Gloo does with the memory.
  struct Transfer {
    std::unique_ptr<gloo::transport::UnboundBuffer> buffer;  // null: complete
    int peer = 0;
    bool sends = false;
  };
  template <class Start>
  Id start(int peer, bool sends, void* data, std::size_t bytes, Start start);

  gloo::transport::Context& context_;
  std::uint64_t slot_;
  std::deque<Transfer> transfers_;
};

}  // namespace tandem::gloo_backend
