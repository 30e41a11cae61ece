#include "comm/shm/shm_backend.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <string>
#include <vector>

#include "comm/process/announcement.h"
#include "comm/shm/collective.h"
#include "comm/shm/group.h"
#include "core/log.h"
#include "core/status.h"

namespace tandem::shm {
namespace {

class ShmMessage;

// This rank's open messages. Those with one peer and direction are transferred one after the other.
struct Channels {
  struct Direction {
    std::deque<ShmMessage*> open;
    std::uint64_t pieces = 0;             // transferred so far
    std::unique_ptr<MappedRange> memory;  // mapped by the first message
  };
  explicit Channels(int size)
      : sending(static_cast<std::size_t>(size)), receiving(static_cast<std::size_t>(size)) {}

  std::vector<Direction> sending, receiving;  // by peer
};

// A send or a recv: pieces in a ring for each pair of ranks and direction.
class ShmMessage final : public ShmOperation {
 public:
  ShmMessage(ShmGroup& group, Channels& channels, const Collective& collective)
      : group_(group),
        collective_(collective),
        buffer_(sends() ? collective.in.front() : collective.out.front()),
        peer_(collective.signature.root),
        direction_(
            (sends() ? channels.sending : channels.receiving)[static_cast<std::size_t>(peer_)]) {
    if (!direction_.memory)
      direction_.memory =
          sends() ? group.map_channel(group.rank(), peer_) : group.map_channel(peer_, group.rank());
    state_ = reinterpret_cast<ChannelState*>(direction_.memory->data());
    direction_.open.push_back(this);
  }

  ~ShmMessage() override { std::erase(direction_.open, this); }

  bool advance() override {
    if (done_) return true;
    if (direction_.open.front() == this) {
      const std::uint64_t passed = direction_.pieces;
      if (sends())
        write_pieces();
      else
        read_pieces();
      if (direction_.pieces != passed) group_.wake_sleepers();
      if (done_) direction_.open.pop_front();
    }
    if (!done_) group_.throw_if_failed();
    return done_;
  }

  std::uint64_t steps() const override { return direction_.pieces; }
  std::vector<int> missing() const override { return {}; }
  bool waits_for(int peer) const override {
    if (peer != peer_) return false;
    if (!sends()) return direction_.pieces >= state_->written.load(std::memory_order_acquire);
    return direction_.pieces >= state_->read.load(std::memory_order_acquire) + kChannelPieces;
  }
  std::string description() const override {
    return describe(collective_.signature, collective_.label, group_.names());
  }

 private:
  std::byte* piece(std::uint64_t number) const {
    return direction_.memory->data() + sizeof(ChannelState) +
           number % kChannelPieces * (sizeof(PieceHeader) + kChannelPieceBytes);
  }

  void write_pieces() {
    while (!done_ &&
           direction_.pieces < state_->read.load(std::memory_order_acquire) + kChannelPieces) {
      std::byte* const piece = this->piece(direction_.pieces);
      auto& header = *reinterpret_cast<PieceHeader*>(piece);
      header.message = header_of(buffer_);
      const std::size_t bytes = piece_bytes();
      if (bytes > 0)
        std::memcpy(piece + sizeof(PieceHeader),
                    static_cast<const std::byte*>(buffer_.data) + passed_, bytes);
      passed_ += bytes;
      state_->written.store(++direction_.pieces, std::memory_order_release);
      done_ = passed_ == buffer_.bytes();
    }
  }

  void read_pieces() {
    while (!done_ && direction_.pieces < state_->written.load(std::memory_order_acquire)) {
      const std::byte* const piece = this->piece(direction_.pieces);
      const auto& header = *reinterpret_cast<const PieceHeader*>(piece);
      check_message(header.message, peer_, buffer_, group_.rank(), group_.names());
      const std::size_t bytes = piece_bytes();
      if (bytes > 0)
        std::memcpy(static_cast<std::byte*>(buffer_.data) + passed_, piece + sizeof(PieceHeader),
                    bytes);
      passed_ += bytes;
      state_->read.store(++direction_.pieces, std::memory_order_release);
      done_ = passed_ == buffer_.bytes();
    }
  }

  std::size_t piece_bytes() const {
    return std::min(kChannelPieceBytes, buffer_.bytes() - passed_);
  }
  bool sends() const { return collective_.signature.kind == CollectiveKind::kSend; }

  ShmGroup& group_;
  const Collective& collective_;
  const Buffer& buffer_;
  int peer_;
  Channels::Direction& direction_;
  ChannelState* state_ = nullptr;
  std::size_t passed_ = 0;  // bytes
  bool done_ = false;
};

class ShmBackend final : public Backend {
 public:
  explicit ShmBackend(GroupOptions options) : group_(std::move(options)) {}

  int rank() const override { return group_.rank(); }
  int size() const override { return group_.size(); }
  const std::string& name() const override { return group_.options().name; }
  const RankNames& names() const override { return group_.names(); }
  bool oversubscribed() const override { return group_.oversubscribed(); }

  std::unique_ptr<BackendOperation> start(const Collective& collective) override {
    switch (collective.signature.kind) {
      case CollectiveKind::kSend:
      case CollectiveKind::kRecv:
        return std::make_unique<ShmMessage>(group_, channels_, collective);
      default: return std::make_unique<ShmCollective>(group_, collectives_, collective);
    }
  }

  void check_peers(const BackendOperation& operation) override {
    const auto& waiting = static_cast<const ShmOperation&>(operation);
    for (int peer = 0; peer < size(); ++peer) {
      if (peer == rank() || !waiting.waits_for(peer) || !group_.is_gone(peer)) continue;
      // It may have finished its part and left after this rank's last check.
      if (waiting.waits_for(peer)) group_.throw_gone(peer, waiting.description());
    }
  }

  bool wait_for_peers(std::chrono::microseconds limit) override {
    group_.wait_for_peers(limit);
    return true;
  }

  void abort(GroupFailure failure, const std::string& text) noexcept override {
    group_.abort(failure, text);
  }
  void check_failure() override { group_.throw_if_failed(); }

  std::shared_ptr<void> allocate(std::size_t bytes) override {
    auto memory = group_.arena().allocate(bytes);
    if (!memory && !warned_) {
      warned_ = true;
      logging::warn(
          "[shm] /dev/shm, or this process's address space, has no room for {} KiB more: "
          "collectives on this memory are copied in and out, which is slower",
          bytes >> 10);
    }
    return memory;
  }

  std::unique_ptr<Backend> split(std::span<const int> ranks, const std::string& name) override {
    return std::make_unique<ShmBackend>(group_.options().of(ranks, name));
  }

 private:
  ShmGroup group_;
  CollectiveQueue collectives_{group_};
  Channels channels_{group_.size()};
  bool warned_ = false;
};

}  // namespace
}  // namespace tandem::shm

namespace tandem {

std::unique_ptr<Backend> make_shm_backend(GroupOptions options) {
  options.check_rank("shm");
  return std::make_unique<shm::ShmBackend>(std::move(options));
}

}  // namespace tandem
