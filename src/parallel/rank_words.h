// What the ranks tell each other in a step, beside gradients.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "comm/communicator.h"

namespace tandem::parallel {

// A few bytes of every rank for every other one. Made once, used in every step without allocating.
class RankWords {
 public:
  RankWords(Communicator& communicator, std::size_t bytes);

  std::uint8_t* mine() { return mine_.data(); }
  // Sends mine(), which belongs to the collective until wait().
  void start();
  bool test() { return !work_ || work_->test(); }
  void wait();
  // What a rank sent.
  const std::uint8_t* of(int rank) const {
    return all_.data() + static_cast<std::size_t>(rank) * mine_.size();
  }

 private:
  Communicator& communicator_;
  std::vector<std::uint8_t> mine_, all_;
  std::vector<Buffer> gathered_;
  std::shared_ptr<Work> work_;
};

}  // namespace tandem::parallel
