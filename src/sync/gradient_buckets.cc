#include "sync/gradient_buckets.h"

#include <utility>

namespace tandem {

std::vector<GradientInfo> gradient_infos(const std::vector<Variable>& variables) {
  std::vector<GradientInfo> infos;
  infos.reserve(variables.size());
  for (const Variable& variable : variables)
    infos.push_back({variable.shape().num_elements(), variable.dtype()});
  return infos;
}

std::vector<std::vector<std::size_t>> assign_buckets(const std::vector<GradientInfo>& gradients,
                                                     const BucketSizes& sizes,
                                                     std::span<const std::size_t> order) {
  struct Open {
    std::vector<std::size_t> gradients;
    std::size_t size = 0;
  };
  std::vector<std::vector<std::size_t>> buckets;
  Open open[8];  // by dtype
  std::size_t limit = sizes.first;
  for (std::size_t k = 0; k < gradients.size(); ++k) {
    const std::size_t i = order.empty() ? gradients.size() - 1 - k : order[k];
    Open& bucket = open[static_cast<int>(gradients[i].dtype)];
    bucket.gradients.push_back(i);
    bucket.size += static_cast<std::size_t>(gradients[i].count) *
                   (sizes.in_elements ? 1 : size_of(gradients[i].dtype));
    if (bucket.size >= limit) {
      buckets.push_back(std::move(bucket.gradients));
      bucket = {};
      limit = sizes.others;
    }
  }
  for (Open& bucket : open)
    if (!bucket.gradients.empty()) buckets.push_back(std::move(bucket.gradients));
  return buckets;
}

BucketFill::BucketFill(const std::vector<GradientInfo>& gradients, const BucketSizes& sizes,
                       std::span<const std::size_t> order)
    : buckets_(assign_buckets(gradients, sizes, order)), positions_(gradients.size()) {
  for (std::size_t bucket = 0; bucket < buckets_.size(); ++bucket)
    for (std::size_t array = 0; array < buckets_[bucket].size(); ++array)
      positions_[buckets_[bucket][array]] = {bucket, array};
  reset();
}

void BucketFill::reset() {
  missing_.clear();
  for (const auto& gradients : buckets_) missing_.push_back(gradients.size());
}

}  // namespace tandem
