// An all-gather of one value per rank over a tree, for instance of addresses. No process sends all
// values to all ranks.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tandem {

// One rank's part. The ranks form a binary tree with root 0. Values travel up; each rank adds its
// own to those of its children. Then all values travel down. A rank has at most three neighbours,
// receives one message from each, and sends and holds a few times the size of all values. The owner
// of this object transports the messages.
class TreeExchange {
 public:
  // REQUIRES: the value is not empty.
  TreeExchange(int rank, int size, const std::string& value);

  // REQUIRES: rank > 0.
  static int parent_of(int rank) { return (rank - 1) / 2; }

  // A message contains the values of several ranks.
  using Message = std::shared_ptr<const std::string>;

  // Whether this neighbour's message has not arrived yet.
  bool awaits(int peer) const;
  // Throws DataLossError for an invalid message. REQUIRES: awaits(peer).
  void receive(int peer, Message message);

  struct Outgoing {
    std::vector<int> to;
    Message message;
  };
  // The message that must be sent now, if any; returns each message once. Throws DataLossError if
  // the neighbours' messages lack values.
  std::optional<Outgoing> take_outgoing();

  // Whether this rank knows all values.
  bool complete() const { return phase_ == Phase::kSent; }
  // The values by rank. Throws DataLossError if a neighbour has omitted ranks. REQUIRES:
  // complete().
  std::vector<std::string> values() const;

 private:
  enum class Phase { kUp, kDown, kSent };

  std::vector<int> children() const;
  // Calls use(rank, value) for each value in a message.
  template <class Use>
  void read(std::string_view message, Use&& use) const;

  const int rank_, size_;
  std::string gathered_;      // this rank's and its descendants'
  Message all_;               // null: not known
  int known_ = 1;             // number of values in `all_`, or else in `gathered_`
  std::vector<int> awaited_;  // children, then the parent
  Phase phase_ = Phase::kUp;
};

}  // namespace tandem
