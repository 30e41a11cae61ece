// A small all-gather per step, for the bookkeeping that ranks exchange besides gradients.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "comm/communicator.h"

namespace tandem {

// All-gathers a few bytes per rank into host memory that is reused in every step.
class ByteExchange {
 public:
  ByteExchange(Communicator& communicator, std::size_t bytes)
      : communicator_(communicator),
        mine_(bytes),
        all_(bytes * static_cast<std::size_t>(communicator.size())) {}

  std::size_t size() const { return mine_.size(); }  // bytes per rank
  std::uint8_t* mine() { return mine_.data(); }
  // Sends mine(), which must not be written to before wait() returns.
  void start() { work_ = communicator_.start_exchange(mine_.data(), mine_.size(), all_.data()); }
  bool test() { return !work_ || work_->test(); }
  void wait() {
    if (const auto work = std::exchange(work_, nullptr)) work->wait();
  }
  // The bytes that `rank` sent.
  const std::uint8_t* of(int rank) const {
    return all_.data() + static_cast<std::size_t>(rank) * mine_.size();
  }

 private:
  Communicator& communicator_;
  std::vector<std::uint8_t> mine_, all_;
  std::shared_ptr<CollectiveWork> work_;
};

}  // namespace tandem
