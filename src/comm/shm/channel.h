// Messages between two ranks: a pipe of some pieces for each pair and direction.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "comm/shm/collective.h"

namespace tandem::shm {

class ShmMessage;

// The messages under way between this rank and its peers. Those of one direction and peer pass one
// behind the other.
class Channels {
 public:
  explicit Channels(Group& group)
      : group_(group),
        sending_(static_cast<std::size_t>(group.size())),
        receiving_(static_cast<std::size_t>(group.size())) {}

 private:
  friend class ShmMessage;
  struct Direction {
    std::deque<ShmMessage*> open;
    std::uint64_t pieces = 0;             // passed so far
    std::unique_ptr<MappedRange> memory;  // once there has been a message
  };
  Group& group_;
  std::vector<Direction> sending_, receiving_;  // by peer
};

// A send or a recv.
class ShmMessage final : public ShmOperation {
 public:
  ShmMessage(Group& group, Channels& channels, const Collective& collective);
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

  Group& group_;
  const Collective& collective_;
  const Buffer& buffer_;
  int peer_;
  Channels::Direction& direction_;
  ChannelState* state_ = nullptr;
  std::size_t passed_ = 0;  // bytes
  bool begun_ = false, done_ = false;
};

}  // namespace tandem::shm
