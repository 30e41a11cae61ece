// The announcements that ranks exchange before the data of a collective, and the small data that
// they include.
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

// The announcements of one collective. One thread at a time.
class Announcements {
 public:
  static constexpr std::size_t kMessageBytes = sizeof(Announcement) + kSmallBytes;

  // Posts the receives. If a connection is broken, check() reports it.
  Announcements(const Mesh& mesh, std::uint64_t sequence);

  // Throws Broken if a receive could not be posted.
  void check() const;
  std::byte* message_of(int rank) const {
    return messages_.get() + static_cast<std::size_t>(rank) * kMessageBytes;
  }
  // Sends this rank's message to all others. Throws Broken.
  void send(std::size_t bytes);
  // These two throw Broken.
  bool all_received();
  bool all_sent() { return sent_.complete(); }
  // The ranks whose messages have not arrived.
  std::vector<int> missing() const;
  bool waits_for(int peer) const { return transfers_.waits_for(peer); }

 private:
  const Mesh& mesh_;
  std::unique_ptr<std::byte[]> messages_;  // by rank
  GlooTransfers transfers_;
  std::vector<Transfers::Id> received_;  // by rank; unused for this rank
  int first_missing_ = 0;                // the messages of lower ranks have arrived
  TransferSet sent_;
  std::optional<Broken> broken_;
};

// Receives that are posted before their collectives are called. Gloo sends nothing until the
// receiver has posted a receive; posting it only when the collective is called would cost a round
// trip. One thread at a time.
class PostedAnnouncements {
 public:
  explicit PostedAnnouncements(const Mesh& mesh);

  // REQUIRES: called once per collective, in order from sequence 0.
  std::unique_ptr<Announcements> take();
  // Posts receives for the next collectives.
  void post();

 private:
  const Mesh& mesh_;
  const std::size_t ahead_;
  std::uint64_t next_ = 0;  // to post
  std::deque<std::unique_ptr<Announcements>> posted_;
};

}  // namespace tandem::gloo_backend
