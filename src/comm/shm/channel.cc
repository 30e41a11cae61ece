#include "comm/shm/channel.h"

#include <algorithm>
#include <cstring>

#include "core/status.h"

namespace tandem::shm {

ShmMessage::ShmMessage(ShmGroup& group, Channels& channels, const Collective& collective)
    : group_(group),
      collective_(collective),
      buffer_(sends() ? collective.in.front() : collective.out.front()),
      peer_(collective.signature.root),
      direction_(
          (sends() ? channels.sending_ : channels.receiving_)[static_cast<std::size_t>(peer_)]) {
  if (!direction_.memory)
    direction_.memory =
        sends() ? group.map_channel(group.rank(), peer_) : group.map_channel(peer_, group.rank());
  state_ = reinterpret_cast<ChannelState*>(direction_.memory->data());
  direction_.open.push_back(this);
}

ShmMessage::~ShmMessage() { std::erase(direction_.open, this); }

bool ShmMessage::advance() {
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

std::size_t ShmMessage::piece_bytes() const {
  return std::min(kChannelPieceBytes, buffer_.bytes() - passed_);
}

std::byte* ShmMessage::piece(std::uint64_t number) const {
  return direction_.memory->data() + sizeof(ChannelState) +
         number % kChannelPieces * (sizeof(PieceHeader) + kChannelPieceBytes);
}

void ShmMessage::write_pieces() {
  while (!done_ &&
         direction_.pieces < state_->read.load(std::memory_order_acquire) + kChannelPieces) {
    std::byte* const piece = this->piece(direction_.pieces);
    auto& header = *reinterpret_cast<PieceHeader*>(piece);
    header.count = buffer_.count;
    header.dtype = buffer_.dtype;
    const std::size_t bytes = piece_bytes();
    if (bytes > 0)
      std::memcpy(piece + sizeof(PieceHeader),
                  static_cast<const std::byte*>(buffer_.data) + passed_, bytes);
    passed_ += bytes;
    state_->written.store(++direction_.pieces, std::memory_order_release);
    done_ = passed_ == buffer_.bytes();
  }
}

void ShmMessage::read_pieces() {
  while (!done_ && direction_.pieces < state_->written.load(std::memory_order_acquire)) {
    const std::byte* const piece = this->piece(direction_.pieces);
    const auto& header = *reinterpret_cast<const PieceHeader*>(piece);
    if (header.count != buffer_.count || header.dtype != buffer_.dtype)
      fail<InvalidArgumentError>("[recv] rank {} sent {} {}, rank {} expected {} {}",
                                 group_.names()[peer_], header.count, name_of(header.dtype),
                                 group_.names()[group_.rank()], buffer_.count,
                                 name_of(buffer_.dtype));
    const std::size_t bytes = piece_bytes();
    if (bytes > 0)
      std::memcpy(static_cast<std::byte*>(buffer_.data) + passed_, piece + sizeof(PieceHeader),
                  bytes);
    passed_ += bytes;
    state_->read.store(++direction_.pieces, std::memory_order_release);
    done_ = passed_ == buffer_.bytes();
  }
}

bool ShmMessage::waits_for(int peer) const {
  if (peer != peer_) return false;
  if (!sends()) return direction_.pieces >= state_->written.load(std::memory_order_acquire);
  return direction_.pieces >= state_->read.load(std::memory_order_acquire) + kChannelPieces;
}

std::string ShmMessage::description() const {
  return describe(collective_.signature, collective_.label, group_.names());
}

}  // namespace tandem::shm
