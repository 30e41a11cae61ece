#include "sync/reducer.h"

#include "core/status.h"

namespace tandem {

std::vector<std::vector<std::size_t>> assign_buckets(const std::vector<GradientInfo>& gradients,
                                                     const BucketSizes& sizes,
                                                     std::span<const std::size_t> order) {
  struct Open {
    std::vector<std::size_t> gradients;
    std::size_t bytes = 0;
  };
  std::vector<std::vector<std::size_t>> buckets;
  Open open[8];  // by dtype
  std::size_t limit = sizes.first;
  for (std::size_t k = 0; k < gradients.size(); ++k) {
    const std::size_t i = order.empty() ? gradients.size() - 1 - k : order[k];
    Open& bucket = open[static_cast<int>(gradients[i].dtype)];
    bucket.gradients.push_back(i);
    bucket.bytes += static_cast<std::size_t>(gradients[i].count) * size_of(gradients[i].dtype);
    if (bucket.bytes >= limit) {
      buckets.push_back(std::move(bucket.gradients));
      bucket = {};
      limit = sizes.others;
    }
  }
  for (Open& bucket : open)
    if (!bucket.gradients.empty()) buckets.push_back(std::move(bucket.gradients));
  return buckets;
}

BucketFill::BucketFill(const std::vector<GradientInfo>& gradients, const BucketSizes& sizes)
    : buckets_(assign_buckets(gradients, sizes)), bucket_of_(gradients.size()) {
  for (std::size_t bucket = 0; bucket < buckets_.size(); ++bucket) {
    missing_.push_back(buckets_[bucket].size());
    for (std::size_t index : buckets_[bucket]) bucket_of_[index] = bucket;
  }
}

std::size_t BucketFill::add(std::size_t index) {
  --missing_[bucket_of_[index]];
  return bucket_of_[index];
}

Reducer::Reducer(GradientTransport& transport, std::vector<GradientInfo> gradients,
                 ReducerOptions options)
    : transport_(transport),
      packs_(transport.packs()),
      options_(options),
      gradients_(std::move(gradients)),
      places_(gradients_.size()) {
  assign({});
  reset();
}

void Reducer::assign(std::span<const std::size_t> order) {
  buckets_.clear();
  std::vector<std::int64_t> counts;
  for (auto& members : assign_buckets(gradients_, options_.sizes, order)) {
    counts.clear();
    for (std::size_t array = 0; array < members.size(); ++array) {
      places_[members[array]] = {buckets_.size(), array};
      counts.push_back(gradients_[members[array]].count);
    }
    Members& bucket = buckets_.emplace_back();
    if (packs_) bucket.memory = transport_.make_bucket(counts, gradients_[members.front()].dtype);
    bucket.gradients = std::move(members);
    bucket.missing = bucket.gradients.size();
  }
  under_way_.reserve(buckets_.size());
}

void Reducer::prepare() {
  if (!order_known_ || ready_order_.empty()) return;
  const std::vector<std::size_t> order = std::move(ready_order_);
  ready_order_.clear();
  assign(order);
  ++generation_;
}

void Reducer::reset() {
  data_.assign(gradients_.size(), nullptr);
  settled_.assign(gradients_.size(), false);
  zeros_.assign(gradients_.size(), false);
  for (Members& bucket : buckets_) bucket.missing = bucket.gradients.size();
  if (!order_known_) ready_order_.clear();
  op_ = ReduceOp::kSum;
  next_ = 0;
  under_way_.clear();
}

void Reducer::ready(std::size_t index, void* data, double scale) {
  prepare();
  if (packs_) {
    const Place place = places_[index];
    buckets_[place.bucket].memory->put(place.array, data, scale);
  } else {
    TANDEM_ASSERT(scale == 1.0);
    data_[index] = data;
  }
  settle(index);
}

void Reducer::zeros(std::size_t index) {
  prepare();
  TANDEM_ASSERT(packs_);
  const Place place = places_[index];
  buckets_[place.bucket].memory->put_zeros(place.array);
  zeros_[index] = true;
  settle(index);
}

void Reducer::settle(std::size_t index) {
  TANDEM_ASSERT(!settled_[index]);
  settled_[index] = true;
  Members& bucket = buckets_[places_[index].bucket];
  --bucket.missing;
  if (options_.rebuild && !order_known_) ready_order_.push_back(index);
  launch();
}

void Reducer::launch() {
  for (; next_ < buckets_.size() && buckets_[next_].missing == 0; ++next_) start(next_);
  transport_.progress();
}

void Reducer::start(std::size_t index) {
  Members& bucket = buckets_[index];
  std::vector<Buffer> parts;
  if (packs_)
    parts.push_back(bucket.memory->whole());
  else
    for (std::size_t i : bucket.gradients)
      parts.push_back({data_[i], gradients_[i].count, gradients_[i].dtype});
  under_way_.push_back(transport_.start({.index = index,
                                         .is_last = index + 1 == buckets_.size(),
                                         .step = step_,
                                         .gradients = bucket.gradients,
                                         .zeros = zeros_,
                                         .memory = packs_ ? &*bucket.memory : nullptr,
                                         .parts = parts,
                                         .op = op_}));
}

void Reducer::finish() {
  struct Fresh {
    Reducer& reducer;
    ~Fresh() { reducer.reset(); }
  } fresh{*this};
  TANDEM_ASSERT(next_ == buckets_.size());
  for (const std::shared_ptr<Work>& work : under_way_) work->wait();
  ++step_;
  if (options_.rebuild && !order_known_) agree_on_order();
}

void Reducer::agree_on_order() {
  std::vector<std::int64_t> order(ready_order_.begin(), ready_order_.end());
  transport_.share_order(order);
  ready_order_.assign(order.begin(), order.end());
  order_known_ = true;
}

Buffer Reducer::result(std::size_t index) const {
  const Place place = places_[index];
  return buckets_[place.bucket].memory->array(place.array);
}

const std::shared_ptr<void>& Reducer::memory(std::size_t index) const {
  return buckets_[places_[index].bucket].memory->memory();
}

const std::vector<std::size_t>& Reducer::fellows(std::size_t index) const {
  return buckets_[places_[index].bucket].gradients;
}

void Reducer::renew(std::size_t index) { buckets_[places_[index].bucket].memory->renew(); }

}  // namespace tandem
