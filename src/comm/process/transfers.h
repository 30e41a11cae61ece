// Non-blocking sends and receives between pairs of ranks.
#pragma once

#include <cstddef>
#include <vector>

namespace tandem {

// The transfers of one collective. One thread at a time.
class Transfers {
 public:
  using Id = std::size_t;
  virtual ~Transfers() = default;
  // The n-th send to a rank in a phase matches that rank's n-th receive from this one in the same
  // phase. REQUIRES: bytes > 0; the memory stays valid until the transfer is complete.
  virtual Id send(int peer, int phase, const std::byte* data, std::size_t bytes) = 0;
  virtual Id receive(int peer, int phase, std::byte* data, std::size_t bytes) = 0;
  // Whether it is complete. Throws if the connection to the peer broke.
  virtual bool complete(Id id) = 0;
  // Whether a receive may be posted into memory that is still being sent, if the peer replies only
  // after it has received all of it.
  virtual bool receives_into_sent() const = 0;
};

// A set of transfers that are waited for together.
class TransferSet {
 public:
  explicit TransferSet(Transfers& transfers) : transfers_(&transfers) {}

  void send(int peer, int phase, const std::byte* data, std::size_t bytes) {
    if (bytes > 0) open_.push_back(transfers_->send(peer, phase, data, bytes));
  }
  void receive(int peer, int phase, std::byte* data, std::size_t bytes) {
    if (bytes > 0) open_.push_back(transfers_->receive(peer, phase, data, bytes));
  }
  bool complete() {
    while (!open_.empty() && transfers_->complete(open_.back())) open_.pop_back();
    return open_.empty();
  }

 private:
  Transfers* transfers_;
  std::vector<Transfers::Id> open_;
};

}  // namespace tandem
