// Which gradients one collective reduces, and which of them are ready. Buckets are reduced while
// the backward pass still runs (as PyTorch's DDP does).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tandem/dtype.h"
#include "tandem/variable.h"

namespace tandem {

struct GradientInfo {
  std::int64_t count = 0;  // elements
  DType dtype = float32;
};
std::vector<GradientInfo> gradient_infos(const std::vector<Variable>& variables);

// A bucket is closed when its size reaches the limit, so its last gradient may exceed the limit (as
// in PyTorch). The first bucket is small, so that the first collective starts early.
struct BucketSizes {
  std::size_t first = std::size_t{1} << 20;
  std::size_t others = std::size_t{25} << 20;
  bool in_elements = false;  // the sizes are numbers of elements instead of bytes
};

// Assigns gradients to buckets and returns the indices per bucket, in launch order. Gradients are
// taken in `order`; if it is empty, last to first, which is about the order of a backward pass. A
// bucket holds gradients of one dtype.
std::vector<std::vector<std::size_t>> assign_buckets(const std::vector<GradientInfo>& gradients,
                                                     const BucketSizes& sizes,
                                                     std::span<const std::size_t> order = {});

// The buckets of assign_buckets(), and how many gradients each still waits for in this step.
class BucketFill {
 public:
  struct Position {
    std::size_t bucket = 0;
    std::size_t array = 0;  // index within the bucket
  };

  BucketFill(const std::vector<GradientInfo>& gradients, const BucketSizes& sizes,
             std::span<const std::size_t> order = {});

  std::size_t size() const { return buckets_.size(); }
  const std::vector<std::size_t>& gradients(std::size_t bucket) const { return buckets_[bucket]; }
  Position position(std::size_t index) const { return positions_[index]; }
  // Counts gradient `index` as ready.
  void add(std::size_t index) { --missing_[positions_[index].bucket]; }
  bool full(std::size_t bucket) const { return missing_[bucket] == 0; }
  // Begins a step: no gradient is ready.
  void reset();

 private:
  std::vector<std::vector<std::size_t>> buckets_;
  std::vector<std::size_t> missing_;  // per bucket: gradients that are not ready
  std::vector<Position> positions_;   // per gradient
};

}  // namespace tandem
