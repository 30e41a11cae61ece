#include "parallel/rank_words.h"

#include <utility>

namespace tandem::parallel {

RankWords::RankWords(Communicator& communicator, std::size_t bytes)
    : communicator_(communicator),
      mine_(bytes),
      all_(bytes * static_cast<std::size_t>(communicator.size())) {
  for (int rank = 0; rank < communicator.size(); ++rank)
    gathered_.push_back({all_.data() + static_cast<std::size_t>(rank) * bytes,
                         static_cast<std::int64_t>(bytes), uint8});
}

void RankWords::start() {
  // Collectives but exchange() are on the device's memory.
  if (!communicator_.device().host_accessible()) {
    communicator_.exchange(mine_.data(), mine_.size(), all_.data());
    return;
  }
  const Buffer mine = {mine_.data(), static_cast<std::int64_t>(mine_.size()), uint8};
  work_ = communicator_.all_gather(mine, gathered_);
}

void RankWords::wait() {
  if (const auto work = std::exchange(work_, nullptr)) work->wait();
}

}  // namespace tandem::parallel
