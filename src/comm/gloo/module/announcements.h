// The announcements that ranks send each other before the data of a collective, and the small data
// that comes with them.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "comm/gloo/module/data_exchange.h"
#include "comm/gloo/module/mesh.h"
#include "comm/process/announcement.h"

namespace tandem::gloo_backend {

// Those of one collective. Belongs to one thread at a time.
class Announcements {
 public:
  static constexpr std::size_t kMessageBytes = sizeof(Announcement) + kSmallBytes;

  // Posts the receives. A connection that is broken is for check().
  Announcements(const Mesh& mesh, std::uint64_t sequence);

  // Throws Broken where a receive could not be posted.
  void check() const;
  std::byte* message_of(int rank) const {
    return messages_.get() + static_cast<std::size_t>(rank) * kMessageBytes;
  }
  // Sends this rank's message to all others. Throws Broken.
  void send(std::size_t bytes);
  // These two throw Broken.
  bool all_received();
  bool all_sent() { return sent_.complete(); }
  // Whose messages have not come.
  std::vector<int> missing() const;
  bool waits_for(int peer) const { return transfers_.waits_for(peer); }

 private:
  const Mesh& mesh_;
  std::unique_ptr<std::byte[]> messages_;  // by rank
  GlooTransfers transfers_;
  std::vector<Transfers::Id> received_;  // by rank; this rank's own has no meaning
  int first_missing_ = 0;                // those of lower ranks have arrived
  TransferSet sent_;
  std::optional<Broken> broken_;
};

// Those of the collectives to come. Gloo sends nothing before it knows that the receiver has posted
// a receive: posted only when the collective is called, it would cost a round trip. Belongs to one
// thread at a time.
class PostedAnnouncements {
 public:
  explicit PostedAnnouncements(const Mesh& mesh);

  // REQUIRES: sequences are taken in order, from 0.
  std::unique_ptr<Announcements> take();
  // Posts those of the next collectives.
  void post();

 private:
  const Mesh& mesh_;
  const std::size_t ahead_;
  std::uint64_t next_ = 0;  // to post
  std::deque<std::unique_ptr<Announcements>> posted_;
};

}  // namespace tandem::gloo_backend
