// How every rank of a group learns what every other one has to tell, such as its address, without
// one process that tells it to all.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tandem {

// One rank's part. The ranks are a binary tree with rank 0 as its root: values go up to it, each
// rank adding its own to those of its children, and all of them come down. So a rank has three
// neighbours at most, gets one message of each, and sends and holds a few times as many bytes as
// all values have together. Knows no connections: whoever owns it carries the messages.
class TreeExchange {
 public:
  // REQUIRES: the value is not empty.
  TreeExchange(int rank, int size, const std::string& value);

  // REQUIRES: rank > 0.
  static int parent_of(int rank) { return (rank - 1) / 2; }

  // Messages are what several ranks tell.
  using Message = std::shared_ptr<const std::string>;

  // Whether the message of this neighbour is yet to come.
  bool awaits(int peer) const;
  // Throws DataLossError for what is no message. REQUIRES: awaits(peer).
  void receive(int peer, Message message);

  struct Outgoing {
    std::vector<int> to;
    Message message;
  };
  // What is to be sent now, if anything; each message once. Throws DataLossError when this rank has
  // been told of fewer ranks than there are.
  std::optional<Outgoing> take_outgoing();

  // This rank knows all values.
  bool complete() const { return phase_ == Phase::kSent; }
  // By rank. Throws DataLossError when a neighbour has left ranks out. REQUIRES: complete().
  std::vector<std::string> values() const;

 private:
  enum class Phase { kUp, kDown, kSent };

  std::vector<int> children() const;
  // Calls use(rank, value) for what a message holds.
  template <class Use>
  void read(std::string_view message, Use&& use) const;

  const int rank_, size_;
  std::string gathered_;      // this rank's and its children's
  Message all_;               // null: not known
  int known_ = 1;             // values in `all_`, else in `gathered_`
  std::vector<int> awaited_;  // children, then the parent
  Phase phase_ = Phase::kUp;
};

}  // namespace tandem
