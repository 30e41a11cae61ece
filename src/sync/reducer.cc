#include "sync/reducer.h"

#include "core/status.h"

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

Reducer::Reducer(GradientTransport& transport, std::vector<GradientInfo> gradients,
                 ReducerOptions options)
    : transport_(transport),
      packs_(transport.packs()),
      options_(options),
      gradients_(std::move(gradients)),
      buckets_(gradients_, options_.sizes) {
  allocate_buckets();
  reset();
}

void Reducer::allocate_buckets() {
  memory_.clear();
  in_flight_.reserve(buckets_.size());
  if (!packs_) return;
  std::vector<std::int64_t> counts;
  for (std::size_t bucket = 0; bucket < buckets_.size(); ++bucket) {
    counts.clear();
    for (std::size_t index : buckets_.gradients(bucket)) counts.push_back(gradients_[index].count);
    const DType dtype = gradients_[buckets_.gradients(bucket).front()].dtype;
    memory_.push_back(transport_.make_bucket(counts, dtype));
  }
}

void Reducer::prepare() {
  if (!order_known_ || ready_order_.empty()) return;
  buckets_ = BucketFill(gradients_, options_.sizes, ready_order_);
  ready_order_.clear();
  allocate_buckets();
  ++generation_;
}

void Reducer::reset() {
  data_.assign(gradients_.size(), nullptr);
  contributed_.assign(gradients_.size(), false);
  zeros_.assign(gradients_.size(), false);
  buckets_.reset();
  if (!order_known_) ready_order_.clear();
  op_ = ReduceOp::kSum;
  next_ = 0;
  in_flight_.clear();
}

void Reducer::ready(std::size_t index, void* data, double scale) {
  prepare();
  if (packs_) {
    const BucketFill::Position position = buckets_.position(index);
    memory_[position.bucket].put(position.array, data, scale);
  } else {
    TANDEM_ASSERT(scale == 1.0);
    data_[index] = data;
  }
  mark_contributed(index);
}

void Reducer::zeros(std::size_t index) {
  prepare();
  TANDEM_ASSERT(packs_);
  const BucketFill::Position position = buckets_.position(index);
  memory_[position.bucket].put_zeros(position.array);
  zeros_[index] = true;
  mark_contributed(index);
}

void Reducer::mark_contributed(std::size_t index) {
  TANDEM_ASSERT(!contributed_[index]);
  contributed_[index] = true;
  buckets_.add(index);
  if (options_.rebuild && !order_known_) ready_order_.push_back(index);
  launch();
}

void Reducer::launch() {
  for (; next_ < buckets_.size() && buckets_.full(next_); ++next_) start(next_);
  transport_.progress();
}

void Reducer::start(std::size_t bucket) {
  const std::vector<std::size_t>& gradients = buckets_.gradients(bucket);
  std::vector<Buffer> buffers;
  if (packs_)
    buffers.push_back(memory_[bucket].whole());
  else
    for (std::size_t i : gradients)
      buffers.push_back({data_[i], gradients_[i].count, gradients_[i].dtype});
  in_flight_.push_back(transport_.start({.index = bucket,
                                         .is_last = bucket + 1 == buckets_.size(),
                                         .step = step_,
                                         .gradients = gradients,
                                         .zeros = zeros_,
                                         .memory = packs_ ? &memory_[bucket] : nullptr,
                                         .buffers = buffers,
                                         .op = op_}));
}

void Reducer::finish() {
  struct ResetOnExit {
    Reducer& reducer;
    ~ResetOnExit() { reducer.reset(); }
  } reset_on_exit{*this};
  TANDEM_ASSERT(next_ == buckets_.size());
  for (const std::shared_ptr<CollectiveWork>& work : in_flight_) work->wait();
  ++step_;
  if (options_.rebuild && !order_known_) adopt_order_of_rank_0();
}

void Reducer::adopt_order_of_rank_0() {
  std::vector<std::int64_t> order(ready_order_.begin(), ready_order_.end());
  transport_.broadcast_order(order);
  ready_order_.assign(order.begin(), order.end());
  order_known_ = true;
}

Buffer Reducer::result(std::size_t index) const {
  const BucketFill::Position position = buckets_.position(index);
  return memory_[position.bucket].array(position.array);
}

const std::shared_ptr<void>& Reducer::memory(std::size_t index) const {
  return memory_[buckets_.position(index).bucket].memory();
}

void Reducer::replace_memory(std::size_t index) {
  memory_[buckets_.position(index).bucket].replace_memory();
}

}  // namespace tandem
