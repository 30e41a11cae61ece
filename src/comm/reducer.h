// The one gradient reducer: buckets of gradients that are all-reduced while backward still runs.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "comm/communicator.h"

namespace tandem {

struct ReducerOptions {
  // A bucket is closed when its size reaches the limit, so it may exceed it (as in PyTorch). The
  // first is small, so that the first collective starts early.
  std::size_t first_bucket_bytes = std::size_t{1} << 20;
  std::size_t bucket_bytes = std::size_t{25} << 20;
};

struct GradientInfo {
  std::int64_t count = 0;  // elements
  DType dtype = float32;
};

// Which gradients share a bucket, in the order of the launches: gradients are taken last to first,
// as backward makes them; one dtype a bucket.
std::vector<std::vector<std::size_t>> assign_buckets(const std::vector<GradientInfo>& gradients,
                                                     const ReducerOptions& options);

// One rank's side. Every rank makes it with the same gradients. Belongs to one thread at a time.
class Reducer {
 public:
  Reducer(Communicator& communicator, std::vector<GradientInfo> gradients,
          ReducerOptions options = {});

  // Gradient `index` is final in `buffer`, whose memory belongs to the reducer until finish(). A
  // bucket whose gradients are all there sets out, in the order of the buckets.
  void ready(std::size_t index, void* data);
  // No rank has gradient `index` in this step. Every rank must say so before finish().
  void skip(std::size_t index);
  const std::vector<bool>& settled() const { return settled_; }
  // Waits for every bucket; the buffers then hold the sums. REQUIRES: every gradient is ready or
  // skipped. The reducer is fresh for the next step afterwards, also when this throws.
  void finish();
  void reset();

 private:
  void settle(std::size_t index);
  void launch();

  struct Bucket {
    std::vector<std::size_t> gradients;
    std::size_t missing = 0;
  };

  Communicator& communicator_;
  std::vector<GradientInfo> gradients_;
  std::vector<Bucket> buckets_;
  std::vector<std::size_t> bucket_of_;
  std::vector<void*> data_;  // null: skipped, or not there yet
  std::vector<bool> settled_;
  std::size_t next_ = 0;  // the first bucket that has not set out
  std::vector<std::shared_ptr<Work>> under_way_;
};

}  // namespace tandem
