// Open collectives and messages. Each is a sequence of transfers.
#pragma once

#include <gloo/transport/context.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "comm/gloo/module/engine.h"
#include "comm/gloo/module/gloo_transfers.h"
#include "comm/gloo/module/mesh.h"
#include "comm/process/transferred_collective.h"

namespace tandem::gloo_backend {

// The maximum bytes of data in an announcement.
constexpr std::size_t kSmallBytes = 8 << 10;

// The engine steps it; the group's owner polls whether it has ended.
class GlooOperation : public BackendOperation, public GlooEngine::Task {
 public:
  GlooOperation(const Mesh& mesh, GlooEngine& engine, const Collective& collective)
      : mesh_(mesh), engine_(engine), collective_(collective) {}

  bool advance() override;
  bool sleep(std::chrono::microseconds limit) const override;
  std::uint64_t steps() const override { return progress_.load(std::memory_order_relaxed); }

  void step() noexcept override;
  virtual std::string description() const = 0;
  // Whether data from the rank has not arrived, or data for it has not been sent.
  bool waits_for(int peer) const;

 protected:
  // For the destructors of subclasses: no thread steps it any more.
  void end() { engine_.remove(*this); }

  const Mesh& mesh_;
  GlooEngine& engine_;
  const Collective& collective_;
  std::uint64_t steps_ = 0;

 private:
  // The first call starts the operation. Returns whether it is complete. Throws Broken, or the
  // error that the operation fails with.
  virtual bool proceed() = 0;
  virtual bool is_waiting_for(int peer) const = 0;

  std::atomic<std::uint64_t> progress_{0};  // steps_
  std::atomic<bool> ended_{false};
  std::optional<Broken> broken_;  // valid once it has ended, as error_
  std::exception_ptr error_;
  mutable std::mutex mutex_;
  mutable std::condition_variable has_ended_;
};

// The announcements that ranks exchange before the data of one collective, with the small data that
// they include. One thread at a time.
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

// Ranks first exchange announcements of their calls. Each rank then knows which ranks are missing
// and which calls mismatch.
class GlooCollective final : public GlooOperation {
 public:
  GlooCollective(const Mesh& mesh, GlooEngine& engine, Scratch& scratch,
                 const Collective& collective, std::unique_ptr<Announcements> announcements);
  ~GlooCollective() override { end(); }
  std::vector<int> missing() const override;
  std::string description() const override;

 private:
  bool proceed() override;
  bool is_waiting_for(int peer) const override;
  void start();

  std::unique_ptr<Announcements> announcements_;
  GlooTransfers transfers_;
  TransferredCollective data_;
  bool started_ = false, announced_ = false;
};

class GlooMessage final : public GlooOperation {
 public:
  GlooMessage(const Mesh& mesh, GlooEngine& engine, const Collective& collective,
              std::uint64_t number);
  ~GlooMessage() override { end(); }
  std::vector<int> missing() const override { return {}; }
  std::string description() const override;

 private:
  bool proceed() override { return message_.advance(steps_); }
  bool is_waiting_for(int peer) const override { return peer == collective_.signature.root; }

  GlooTransfers transfers_;
  TransferredMessage message_;
};

}  // namespace tandem::gloo_backend
