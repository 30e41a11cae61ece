// The entry points of the module that libtandem loads.
#include <gloo/transport/context.h>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "comm/gloo/module/gloo_transfers.h"
#include "comm/gloo/module/mesh.h"
#include "comm/gloo/module/sigpipe.h"
#include "comm/process/transferred_collective.h"
#include "core/log.h"
#include "core/parallel.h"
#include "core/status.h"

namespace tandem::gloo_backend {
namespace {

class GlooOperation;

// Advances a group's operations: on the thread that starts them, and on Gloo's thread whenever a
// connection has read or written. No thread blocks in Gloo.
class GlooEngine {
 public:
  // Steps the operation from now on, for the first time on this thread.
  void add(GlooOperation& operation);
  // When this returns, no thread steps the operation any more.
  void remove(GlooOperation& operation) {
    pause([&] { std::erase(operations_, &operation); });
  }
  // Runs `body` while no thread steps any operation.
  void pause(const std::function<void()>& body) {
    const NoSigpipe quiet;
    {
      const std::lock_guard lock(mutex_);
      body();
    }
    catch_up();
  }
  // A transfer may have completed: steps the operations. Never blocks; if another thread is
  // stepping, that thread does one more round.
  void notify() noexcept {
    notifications_.fetch_add(1);
    catch_up();
  }
  // No operation is stepped any more.
  void stop() {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }

 private:
  void catch_up() noexcept;

  std::mutex mutex_;
  std::vector<GlooOperation*> operations_;  // in the order of the calls
  bool stopped_ = false;
  std::atomic<std::uint64_t> notifications_{0}, handled_{0};
};

// The engine steps it; the group's owner polls whether it has ended.
class GlooOperation : public BackendOperation {
 public:
  GlooOperation(const Mesh& mesh, GlooEngine& engine, const Collective& collective)
      : mesh_(mesh), engine_(engine), collective_(collective) {}

  bool advance() override {
    if (!ended_.load(std::memory_order_acquire)) return false;
    if (broken_) mesh_.throw_broken(broken_->peer, description(), broken_->reason);
    if (error_) std::rethrow_exception(error_);
    return true;
  }
  bool sleep(std::chrono::microseconds limit) const override {
    std::unique_lock lock(mutex_);
    has_ended_.wait_for(lock, limit, [this] { return ended_.load(std::memory_order_acquire); });
    return true;
  }
  std::uint64_t steps() const override { return progress_.load(std::memory_order_relaxed); }
  virtual std::string description() const {
    return describe(collective_.signature, collective_.label, mesh_.names());
  }

  // Makes progress without waiting. Called by one thread at a time.
  void step() noexcept;
  // Whether data from the rank has not arrived, or data for it has not been sent.
  bool waits_for(int peer) const {
    bool waits = false;
    engine_.pause([&] { waits = is_waiting_for(peer); });
    return waits;
  }

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

void GlooOperation::step() noexcept {
  if (ended_.load(std::memory_order_relaxed)) return;
  bool ended = true;
  try {
    ended = proceed();
  } catch (const Broken& broken) {
    broken_ = broken;
  } catch (...) {
    error_ = std::current_exception();
  }
  progress_.store(steps_, std::memory_order_relaxed);
  if (!ended) return;
  const std::lock_guard lock(mutex_);
  ended_.store(true, std::memory_order_release);
  has_ended_.notify_all();
}

void GlooEngine::add(GlooOperation& operation) {
  pause([&] {
    if (stopped_) return;
    operations_.push_back(&operation);
    operation.step();
  });
}

// The lock's holder reads `notifications_` after releasing the lock. A thread that fails to lock
// has incremented it before. At least one of the two sees the other.
void GlooEngine::catch_up() noexcept {
  for (;;) {
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (notifications_.load() == handled_.load()) return;
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock) return;
    handled_.store(notifications_.load());
    if (stopped_) continue;
    const ThreadBudget one(1);
    for (GlooOperation* operation : operations_) operation->step();
  }
}

constexpr std::size_t kSmallBytes = 8 << 10;  // the maximum bytes of data in an announcement
// Announcements that are posted ahead: about as many as the open collectives of a training step, as
// long as their messages take little memory.
constexpr std::size_t kAhead = 4;
constexpr std::size_t kPostedBytes = 1 << 20;
// Slices of all ranks in a window, which is reduced while the next one is in flight.
constexpr std::int64_t kWindowBytes = 8 << 20;

// The announcements that ranks exchange before the data of one collective, with the small data that
// they include. One thread at a time.
class Announcements {
 public:
  // Posts the receives, with room for the longest message: a peer may send less.
  Announcements(const Mesh& mesh, std::uint64_t sequence)
      : mesh_(mesh),
        messages_(std::make_unique_for_overwrite<std::byte[]>(
            static_cast<std::size_t>(mesh.size()) * kMessageBytes)),
        transfers_(mesh.context(), collective_slot(sequence)),
        received_(static_cast<std::size_t>(mesh.size())),
        sent_(transfers_) {
    try {
      for (int peer = 0; peer < mesh_.size(); ++peer)
        if (peer != mesh_.rank())
          received_[static_cast<std::size_t>(peer)] =
              transfers_.receive(peer, 0, message_of(peer), kMessageBytes);
    } catch (const Broken& broken) {
      broken_ = broken;
    }
  }
  static std::size_t ahead(const Mesh& mesh) {
    const std::size_t bytes = static_cast<std::size_t>(mesh.size()) * kMessageBytes;
    return std::clamp<std::size_t>(kPostedBytes / bytes, 1, kAhead);
  }

  // Sends this rank's message to all others. These throw Broken, also if a receive could not be
  // posted.
  void send(const Collective& collective) {
    if (broken_) throw *broken_;
    std::byte* const mine = message_of(mesh_.rank());
    const std::size_t bytes = write_announcement(collective, mesh_.rank(), kSmallBytes, mine);
    for (int peer = 0; peer < mesh_.size(); ++peer)
      if (peer != mesh_.rank()) sent_.send(peer, 0, mine, bytes);
  }
  bool all_received() {
    for (; first_missing_ < mesh_.size(); ++first_missing_)
      if (first_missing_ != mesh_.rank() &&
          !transfers_.complete(received_[static_cast<std::size_t>(first_missing_)]))
        return false;
    return true;
  }
  bool all_sent() { return sent_.complete(); }
  std::vector<const std::byte*> messages() {
    std::vector<const std::byte*> all;
    for (int rank = 0; rank < mesh_.size(); ++rank) all.push_back(message_of(rank));
    return all;
  }
  // The ranks whose messages have not arrived.
  std::vector<int> missing() const {
    std::vector<int> ranks;
    if (broken_) return ranks;
    for (int rank = first_missing_; rank < mesh_.size(); ++rank)
      if (rank != mesh_.rank() &&
          !transfers_.has_arrived(received_[static_cast<std::size_t>(rank)]))
        ranks.push_back(rank);
    return ranks;
  }
  bool waits_for(int peer) const { return transfers_.waits_for(peer); }

 private:
  static constexpr std::size_t kMessageBytes = sizeof(Announcement) + kSmallBytes;
  std::byte* message_of(int rank) {
    return messages_.get() + static_cast<std::size_t>(rank) * kMessageBytes;
  }

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
  explicit PostedAnnouncements(const Mesh& mesh) : mesh_(mesh) {}

  // REQUIRES: called once per collective, in order from sequence 0.
  std::unique_ptr<Announcements> take() {
    if (posted_.empty()) post();
    std::unique_ptr<Announcements> first = std::move(posted_.front());
    posted_.pop_front();
    return first;
  }
  // Posts receives for the next collectives.
  void post() {
    while (posted_.size() < Announcements::ahead(mesh_))
      posted_.push_back(std::make_unique<Announcements>(mesh_, next_++));
  }

 private:
  const Mesh& mesh_;
  std::uint64_t next_ = 0;  // to post
  std::deque<std::unique_ptr<Announcements>> posted_;
};

// Distinguishes mismatched calls.
std::uint64_t hash_of(const Signature& signature) {
  return (signature.layout ^ static_cast<std::uint64_t>(signature.op) * 0x9e3779b97f4a7c15u ^
          static_cast<std::uint64_t>(signature.count) * 0xbf58476d1ce4e5b9u) >>
         40;
}

// Ranks first exchange announcements of their calls. Each rank then knows which ranks are missing
// and which calls mismatch.
class GlooCollective final : public GlooOperation {
 public:
  GlooCollective(const Mesh& mesh, GlooEngine& engine, Scratch& scratch,
                 const Collective& collective, std::unique_ptr<Announcements> announcements)
      : GlooOperation(mesh, engine, collective),
        announcements_(std::move(announcements)),
        transfers_(mesh.context(), collective_slot(collective.sequence)),
        data_(transfers_, collective, mesh.names(), scratch,
              {.rank = mesh.rank(),
               .size = mesh.size(),
               .window_bytes = kWindowBytes,
               .small_limit = kSmallBytes}) {
    engine_.add(*this);
  }
  ~GlooCollective() override { end(); }

  std::vector<int> missing() const override {
    std::vector<int> ranks;
    engine_.pause([&] { ranks = announcements_->missing(); });
    return ranks;
  }
  std::string description() const override {
    return fmt::format("collective {} ({})", collective_.sequence, GlooOperation::description());
  }

 private:
  bool proceed() override {
    if (!std::exchange(started_, true)) start();
    if (!announced_) {
      if (!announcements_->all_received()) return false;
      const std::vector<const std::byte*> messages = announcements_->messages();
      check_announcements(collective_, messages, mesh_.names());
      data_.start(messages);
      announced_ = true;
      ++steps_;
    }
    return data_.advance(steps_) && announcements_->all_sent();
  }
  void start() {
    announcements_->send(collective_);
    if (collective_.signature.kind != CollectiveKind::kAllReduce) return;
    transfers_.renumber(collective_slot(collective_.sequence, hash_of(collective_.signature)));
    data_.start_early();
  }
  bool is_waiting_for(int peer) const override {
    return announcements_->waits_for(peer) || transfers_.waits_for(peer);
  }

  std::unique_ptr<Announcements> announcements_;
  GlooTransfers transfers_;
  TransferredCollective data_;
  bool started_ = false, announced_ = false;
};

class GlooMessage final : public GlooOperation {
 public:
  GlooMessage(const Mesh& mesh, GlooEngine& engine, const Collective& collective,
              std::uint64_t number)
      : GlooOperation(mesh, engine, collective),
        transfers_(mesh.context(), kMessageSlots + 2 * number),
        message_(transfers_, collective, mesh.rank(), mesh.names()) {
    engine_.add(*this);
  }
  ~GlooMessage() override { end(); }
  std::vector<int> missing() const override { return {}; }

 private:
  bool proceed() override { return message_.advance(steps_); }
  // A message that has arrived does not count, as its sender may have left before the next step.
  // Neither does one whose data was not asked for yet: the step that asks for it finds the broken
  // connection.
  bool is_waiting_for(int peer) const override { return transfers_.waits_for(peer); }

  GlooTransfers transfers_;
  TransferredMessage message_;
};

class GlooBackend final : public Backend {
 public:
  GlooBackend(GroupOptions options, GlooAddress where)
      : mesh_(std::move(options), std::move(where), [this] { engine_.notify(); }) {}
  ~GlooBackend() override { engine_.stop(); }

  int rank() const override { return mesh_.rank(); }
  int size() const override { return mesh_.size(); }
  const std::string& name() const override { return mesh_.options().name; }
  const RankNames& names() const override { return mesh_.names(); }
  bool oversubscribed() const override { return mesh_.oversubscribed(); }

  std::unique_ptr<BackendOperation> start(const Collective& collective) override {
    const CollectiveKind kind = collective.signature.kind;
    if (kind != CollectiveKind::kSend && kind != CollectiveKind::kRecv)
      return start_collective(collective);
    std::uint64_t& number = messages_[{collective.signature.root, kind == CollectiveKind::kSend}];
    return std::make_unique<GlooMessage>(mesh_, engine_, collective, number++);
  }

  void check_peers(const BackendOperation& operation) override {
    const auto& waiting = static_cast<const GlooOperation&>(operation);
    mesh_.check_connections([&](int peer) { return waiting.waits_for(peer); },
                            waiting.description());
  }

  void abort(GroupFailure failure, const std::string& text) noexcept override {
    try {
      mesh_.publish_failure(failure, text);
    } catch (const std::exception& error) {
      logging::warn("[gloo] could not publish the failure of group '{}' to its other ranks: {}",
                    mesh_.options().name, error.what());
    }
    engine_.stop();
    mesh_.close();
  }

  void check_failure() override { mesh_.check_failure(); }

  std::unique_ptr<Backend> split(std::span<const int> ranks, const std::string& name) override {
    return std::make_unique<GlooBackend>(mesh_.options().of(ranks, name), mesh_.where());
  }

 private:
  std::unique_ptr<BackendOperation> start_collective(const Collective& collective) {
    const NoSigpipe quiet;
    auto operation = std::make_unique<GlooCollective>(mesh_, engine_, scratch_, collective,
                                                      announcements_.take());
    announcements_.post();
    return operation;
  }

  Scratch scratch_;    // of the thread that steps operations
  GlooEngine engine_;  // outlives the connections, which notify it
  Mesh mesh_;
  PostedAnnouncements announcements_{mesh_};
  std::map<std::pair<int, bool>, std::uint64_t> messages_;  // per peer, sent or received
};

}  // namespace
}  // namespace tandem::gloo_backend

extern "C" __attribute__((visibility("default"))) tandem::Backend* tandem_make_gloo_backend(
    tandem::GroupOptions* options, tandem::GlooAddress* where) {
  return new tandem::gloo_backend::GlooBackend(std::move(*options), std::move(*where));
}
