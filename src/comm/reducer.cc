#include "comm/reducer.h"

#include "core/status.h"

namespace tandem {

std::vector<std::vector<std::size_t>> assign_buckets(const std::vector<GradientInfo>& gradients,
                                                     const ReducerOptions& options) {
  struct Open {
    std::vector<std::size_t> gradients;
    std::size_t bytes = 0;
  };
  std::vector<std::vector<std::size_t>> buckets;
  Open open[8];  // by dtype
  std::size_t limit = options.first_bucket_bytes;
  for (std::size_t i = gradients.size(); i-- > 0;) {
    Open& bucket = open[static_cast<int>(gradients[i].dtype)];
    bucket.gradients.push_back(i);
    bucket.bytes += static_cast<std::size_t>(gradients[i].count) * size_of(gradients[i].dtype);
    if (bucket.bytes >= limit) {
      buckets.push_back(std::move(bucket.gradients));
      bucket = {};
      limit = options.bucket_bytes;
    }
  }
  for (Open& bucket : open)
    if (!bucket.gradients.empty()) buckets.push_back(std::move(bucket.gradients));
  return buckets;
}

Reducer::Reducer(Communicator& communicator, std::vector<GradientInfo> gradients,
                 ReducerOptions options)
    : communicator_(communicator), gradients_(std::move(gradients)), bucket_of_(gradients_.size()) {
  for (auto& members : assign_buckets(gradients_, options)) {
    for (std::size_t index : members) bucket_of_[index] = buckets_.size();
    buckets_.push_back({std::move(members), 0});
  }
  reset();
}

void Reducer::reset() {
  data_.assign(gradients_.size(), nullptr);
  settled_.assign(gradients_.size(), false);
  for (Bucket& bucket : buckets_) bucket.missing = bucket.gradients.size();
  next_ = 0;
  under_way_.clear();
}

void Reducer::ready(std::size_t index, void* data) {
  data_[index] = data;
  settle(index);
}

void Reducer::skip(std::size_t index) { settle(index); }

void Reducer::settle(std::size_t index) {
  TANDEM_ASSERT(!settled_[index]);
  settled_[index] = true;
  --buckets_[bucket_of_[index]].missing;
  launch();
}

void Reducer::launch() {
  while (next_ < buckets_.size() && buckets_[next_].missing == 0) {
    std::vector<Buffer> parts;
    for (std::size_t index : buckets_[next_].gradients)
      if (data_[index])
        parts.push_back({data_[index], gradients_[index].count, gradients_[index].dtype});
    ++next_;
    if (!parts.empty()) under_way_.push_back(communicator_.all_reduce(parts, ReduceOp::kSum));
  }
  communicator_.progress();
}

void Reducer::finish() {
  struct Fresh {
    Reducer& reducer;
    ~Fresh() { reducer.reset(); }
  } fresh{*this};
  TANDEM_ASSERT(next_ == buckets_.size());
  for (const auto& work : under_way_) work->wait();
}

}  // namespace tandem
