#include "comm/transport/transport_backend.h"

#include <unistd.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "comm/process/transferred_collective.h"
#include "core/status.h"

namespace tandem {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t kWindowBytes = 4 << 20;  // per window, all ranks' slices together

// MPI sends a message of this size at once, without asking the receiver first.
constexpr std::size_t kPiece = 3 << 10;

// The maximum data in an announcement. Every rank sends it to every other.
std::size_t small_limit(int ranks) { return (std::size_t{8} << 10) / (ranks > 8 ? 8 : 1); }

class TransportOperation;

// The state that a group's operations share.
struct TransportGroup {
  std::shared_ptr<Transport> transport;
  std::string name;
  RankNames names;
  std::chrono::milliseconds time_limit;
  std::shared_ptr<const Membership> membership;
  Scratch scratch{};
  std::vector<TransportOperation*> operations{};

  // Throws the error that a rank has sent.
  void look_for_failure() const {
    for (int peer = 0; peer < transport->size(); ++peer) transport->left(peer);
  }
};

class TransportOperation : public BackendOperation {
 public:
  TransportOperation(TransportGroup& group, const Collective& collective)
      : group_(group), collective_(collective) {
    group_.operations.push_back(this);
  }
  ~TransportOperation() override { std::erase(group_.operations, this); }

  bool advance() override { return done_ = done_ || proceed(); }
  std::uint64_t steps() const override { return steps_; }
  // Whether this rank still waits for something from `peer`.
  virtual bool waits_for(int peer) const = 0;
  // The group has failed: cancels the transfers. Returns whether their memory is free.
  virtual bool cancel() noexcept = 0;
  virtual std::string description() const {
    return describe(collective_.signature, collective_.label, group_.names);
  }

 protected:
  // Makes progress without waiting. Returns whether it is complete.
  virtual bool proceed() = 0;

  TransportGroup& group_;
  const Collective& collective_;
  std::uint64_t steps_ = 0;
  bool done_ = false;
};

class TransportCollective final : public TransportOperation {
 public:
  TransportCollective(TransportGroup& group, const Collective& collective)
      : TransportOperation(group, collective),
        own_(std::make_shared<Own>(group, collective)),
        received_(own_->ranks) {
    const int rank = group.transport->rank();
    const std::size_t mine =
        write_announcement(collective, rank, own_->small, own_->message_of(rank));
    for (int peer = 0; peer < group.transport->size(); ++peer)
      if (peer != rank) receive_from(peer);
    for (int peer = 0; peer < group.transport->size(); ++peer)
      if (peer != rank) sent_.push_back(own_->calls.send(peer, 0, own_->message_of(rank), mine));
  }
  ~TransportCollective() override {
    if (!done_ && !TransportCollective::cancel()) Transport::keep_for_ever(own_);
  }

  std::vector<int> missing() const override {
    std::vector<int> ranks;
    for (int rank = 0; rank < group_.transport->size(); ++rank)
      if (waits_for(rank)) ranks.push_back(rank);
    return ranks;
  }
  bool waits_for(int peer) const override {
    return received_[static_cast<std::size_t>(peer)].has_value();
  }
  bool cancel() noexcept override {
    const bool calls = own_->calls.cancel();
    return own_->transfers.cancel() && calls;
  }
  std::string description() const override {
    return fmt::format("collective {} ({})", collective_.sequence,
                       TransportOperation::description());
  }

 private:
  // The memory that transfers access besides the caller's buffers.
  struct Own {
    Own(TransportGroup& group, const Collective& collective)
        : ranks(static_cast<std::size_t>(group.transport->size())),
          small(small_limit(group.transport->size())),
          piece(std::min(kPiece, group.transport->longest())),
          messages(room() * ranks),
          calls(*group.transport, kAnnouncementTag, piece),
          transfers(*group.transport,
                    kCollectiveTag + static_cast<int>(collective.sequence % kCollectives) *
                                         TransferredCollective::kPhases,
                    group.transport->longest()),
          data(transfers, collective, group.names, group.scratch,
               {.rank = group.transport->rank(),
                .size = group.transport->size(),
                .window_bytes = kWindowBytes,
                .small_limit = small}) {}
    // The last piece of a message is received as if it were a full one.
    std::size_t room() const { return sizeof(Announcement) + small + piece; }
    std::byte* message_of(int rank) { return &messages[room() * static_cast<std::size_t>(rank)]; }

    const std::size_t ranks, small;  // `small`: the maximum data bytes in an announcement
    const std::size_t piece;         // of a message with an announcement
    std::vector<std::byte> messages;
    TransportTransfers calls, transfers;
    TransferredCollective data;
  };

  std::vector<const std::byte*> messages() const {
    std::vector<const std::byte*> all;
    for (int rank = 0; rank < group_.transport->size(); ++rank)
      all.push_back(own_->message_of(rank));
    return all;
  }
  // A peer whose call mismatches sends different pieces, except the first, which has its
  // announcement.
  void receive_from(int peer) {
    std::byte* const message = own_->message_of(peer);
    const auto receive = [&](std::size_t at) {
      return own_->calls.receive(peer, 0, message + at, own_->piece);
    };
    received_[static_cast<std::size_t>(peer)] = receive(0);
    const std::size_t bytes =
        sizeof(Announcement) + bytes_with_announcement(collective_, peer, own_->small);
    for (std::size_t at = own_->piece; at < bytes; at += own_->piece) rest_.push_back(receive(at));
  }
  bool all_have_called() {
    bool all = true;
    for (auto& id : received_) {
      if (!id) continue;
      if (own_->calls.complete(*id)) {
        ++steps_;
        id.reset();
      } else {
        all = false;
      }
    }
    return all;
  }
  bool complete(std::vector<Transfers::Id>& ids) {
    steps_ += std::erase_if(ids, [&](Transfers::Id id) { return own_->calls.complete(id); });
    return ids.empty();
  }
  bool proceed() override {
    if (!checked_) {
      if (!all_have_called()) return false;
      check_announcements(collective_, messages(), group_.names);
      checked_ = true;
    }
    if (!started_) {
      if (!complete(rest_)) return false;
      group_.look_for_failure();  // of ranks that failed after they called
      own_->data.start(messages());
      started_ = true;
    }
    if (!own_->data.advance(steps_) || !complete(sent_)) return false;
    ++steps_;
    return true;
  }

  const std::shared_ptr<Own> own_;
  std::vector<std::optional<Transfers::Id>> received_;  // the calls of ranks that are missing
  std::vector<Transfers::Id> rest_, sent_;              // of the messages with calls
  bool checked_ = false, started_ = false;
};

class TransportMessage final : public TransportOperation {
 public:
  TransportMessage(TransportGroup& group, const Collective& collective, std::uint64_t number)
      : TransportOperation(group, collective),
        own_(std::make_shared<Own>(group, collective, static_cast<int>(number % kMessages))) {}
  ~TransportMessage() override {
    if (!done_ && !TransportMessage::cancel()) Transport::keep_for_ever(own_);
  }

  std::vector<int> missing() const override { return {}; }
  bool waits_for(int peer) const override { return !done_ && peer == collective_.signature.root; }
  bool cancel() noexcept override { return own_->transfers.cancel(); }

 private:
  struct Own {
    Own(TransportGroup& group, const Collective& collective, int number)
        : transfers(*group.transport, kMessageTag + 2 * number, group.transport->longest()),
          message(transfers, collective, group.transport->rank(), group.names) {}
    TransportTransfers transfers;
    TransferredMessage message;
  };
  bool proceed() override { return own_->message.advance(steps_); }

  const std::shared_ptr<Own> own_;
};

class TransportBackend final : public Backend {
 public:
  TransportBackend(TransportGroup group, bool oversubscribed)
      : group_(std::move(group)), oversubscribed_(oversubscribed) {}

  int rank() const override { return group_.transport->rank(); }
  int size() const override { return group_.transport->size(); }
  const std::string& name() const override { return group_.name; }
  const RankNames& names() const override { return group_.names; }
  bool allows_any_thread() const override { return group_.transport->allows_any_thread(); }
  bool oversubscribed() const override { return oversubscribed_; }

  std::unique_ptr<BackendOperation> start(const Collective& collective) override {
    const CollectiveKind kind = collective.signature.kind;
    if (kind != CollectiveKind::kSend && kind != CollectiveKind::kRecv)
      return std::make_unique<TransportCollective>(group_, collective);
    std::uint64_t& number = messages_[{collective.signature.root, kind == CollectiveKind::kSend}];
    return std::make_unique<TransportMessage>(group_, collective, number++);
  }

  void check_peers(const BackendOperation& operation) override {
    const auto& waiting = static_cast<const TransportOperation&>(operation);
    group_.look_for_failure();
    for (int peer = 0; peer < size(); ++peer) {
      const auto since = group_.transport->left(peer);
      // Earlier messages may arrive after the notice, which has another tag.
      if (since && Clock::now() - *since > std::chrono::milliseconds(100) &&
          waiting.waits_for(peer))
        fail<AbortedError>("rank {} has left the group; rank {} still waits for it: {}",
                           names()[peer], names()[rank()], waiting.description());
    }
  }

  void check_failure() override { group_.look_for_failure(); }

  void abort(GroupFailure failure, const std::string& text) noexcept override {
    group_.transport->notify_all(failure, text);
    for (TransportOperation* operation : group_.operations) operation->cancel();
  }

  std::unique_ptr<Backend> split(std::span<const int> ranks, const std::string& name) override {
    TransportGroup part{
        .transport = group_.transport->split(ranks, {.name = name,
                                                     .names = group_.names,
                                                     .time_limit = group_.time_limit,
                                                     .membership = group_.membership}),
        .name = name,
        .names = group_.names.of(ranks),
        .time_limit = group_.time_limit,
        .membership = group_.membership};
    return std::make_unique<TransportBackend>(std::move(part), oversubscribed_);
  }

 private:
  TransportGroup group_;
  const bool oversubscribed_;
  std::map<std::pair<int, bool>, std::uint64_t> messages_;  // to or from each peer
};

}  // namespace

std::unique_ptr<Backend> make_transport_backend(const TransportBackendOptions& options) {
  const int size = options.transport->size();
  std::vector<int> all(static_cast<std::size_t>(size));
  std::iota(all.begin(), all.end(), 0);
  return std::make_unique<TransportBackend>(
      TransportGroup{.transport = options.transport->split(all, {.name = options.name,
                                                                 .names = {},
                                                                 .time_limit = options.time_limit,
                                                                 .membership = options.membership}),
                     .name = options.name,
                     .names = {},
                     .time_limit = options.time_limit,
                     .membership = options.membership},
      (options.local_size > 0 ? options.local_size : size) > sysconf(_SC_NPROCESSORS_ONLN));
}

}  // namespace tandem
