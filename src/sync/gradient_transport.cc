#include "sync/gradient_transport.h"

#include <algorithm>

namespace tandem {

std::shared_ptr<CollectiveWork> CommunicatorTransport::start(const FullBucket& bucket) {
  return labelled(bucket.index, bucket.step,
                  [&] { return communicator_->all_reduce(bucket.buffers, bucket.op); });
}

void CommunicatorTransport::broadcast_order(std::span<std::int64_t> order) {
  const Buffer buffer = {order.data(), static_cast<std::int64_t>(order.size()), int64};
  if (communicator_->device().host_accessible()) {
    communicator_->broadcast({&buffer, 1}, 0)->wait();
    return;
  }
  std::vector<std::int64_t> all(order.size() * static_cast<std::size_t>(communicator_->size()));
  communicator_->exchange(order.data(), buffer.bytes(), all.data());
  std::copy(all.begin(), all.begin() + buffer.count, order.begin());
}

std::function<std::vector<std::uint8_t>()> CommunicatorTransport::exchange_presence(
    std::span<const std::uint8_t> mine) {
  if (!present_) present_.emplace(*communicator_, mine.size());
  std::copy(mine.begin(), mine.end(), present_->mine());
  present_->start();
  return [this] {
    present_->wait();
    std::vector<std::uint8_t> present(present_->size());
    for (int rank = 0; rank < communicator_->size(); ++rank)
      for (std::size_t i = 0; i < present.size(); ++i) present[i] |= present_->of(rank)[i];
    return present;
  };
}

}  // namespace tandem
