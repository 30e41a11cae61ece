// Point-to-point messages: a ring of pieces for each pair of ranks and direction.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "comm/shm/collective.h"

namespace tandem::shm {

class ShmMessage;

// This rank's open messages. Those with one peer and direction are transferred one after the other.
class Channels {
 public:
  explicit Channels(ShmGroup& group)
      : group_(group),
        sending_(static_cast<std::size_t>(group.size())),
        receiving_(static_cast<std::size_t>(group.size())) {}

 private:
  friend class ShmMessage;
  struct Direction {
    std::deque<ShmMessage*> open;
    std::uint64_t pieces = 0;             // transferred so far
    std::unique_ptr<MappedRange> memory;  // mapped by the first message
  };
  ShmGroup& group_;
  std::vector<Direction> sending_, receiving_;  // by peer
};

// A send or a recv.
class ShmMessage final : public ShmOperation {
 public:
  ShmMessage(ShmGroup& group, Channels& channels, const Collective& collective);
  ~ShmMessage() override;
  bool advance() override;
  std::uint64_t steps() const override { return direction_.pieces; }
  std::vector<int> missing() const override { return {}; }
  bool waits_for(int peer) const override;
  std::string description() const override;

 private:
  std::byte* piece(std::uint64_t number) const;
  void write_pieces();
  void read_pieces();
  std::size_t piece_bytes() const;
  bool sends() const { return collective_.signature.kind == CollectiveKind::kSend; }

  ShmGroup& group_;
  const Collective& collective_;
  const Buffer& buffer_;
  int peer_;
  Channels::Direction& direction_;
  ChannelState* state_ = nullptr;
  std::size_t passed_ = 0;  // bytes
  bool begun_ = false, done_ = false;
};

}  // namespace tandem::shm
