// Gradient synchronisation in a function that is being traced. Collectives become graph nodes.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "graph/collective.h"
#include "sync/gradient_buckets.h"
#include "sync/gradient_sync.h"
#include "tandem/variable.h"

namespace tandem {

// The gradients that one collective reduces.
struct TracedBucket {
  std::size_t index = 0;
  bool is_last = false;
  std::vector<std::size_t> variables;
  std::vector<Tensor> gradients;
};
// Adds the nodes that reduce a bucket over the ranks. Returns a function that returns the reduced
// gradients, to be called after the nodes of all buckets are added.
using ReduceTraced = std::function<std::function<std::vector<Tensor>()>(const TracedBucket&)>;

struct TracedSyncOptions {
  BucketSizes sizes{};
  // Variables without a gradient contribute zeros, so that no bucket lacks a gradient.
  bool zeros_for_missing = false;
  // Shared by the replicas of one trace. Per backward pass: which variables have a gradient on the
  // replica that was traced first. The other replicas follow it. Null if the other ranks are traced
  // elsewhere; they are then assumed to have the same gradients as this one.
  std::vector<std::vector<bool>>* agreements = nullptr;
  std::size_t pass = 0;  // number of this backward pass: the index into `agreements`
};

// Reduces the same buckets as EagerSync, by nodes. The nodes of a bucket are added as soon as its
// gradients are ready, so that the program launches the collective while the backward pass still
// runs. Every rank adds its buckets in the same order.
class TracedSync final : public GradientSync {
 public:
  // Zeros for missing gradients are created on `device`.
  TracedSync(std::vector<Variable> variables, DeviceImpl& device, ReduceTraced reduce,
             const TracedSyncOptions& options = {});

  void ready(std::size_t index, Tensor gradient) override;
  std::optional<std::vector<Tensor>> finish() override;

 private:
  void launch(bool rest);
  bool agreed(std::size_t index) const { return agreed_ && agreed_->at(index); }

  std::vector<Variable> variables_;
  DeviceImpl& device_;
  ReduceTraced reduce_;
  TracedSyncOptions options_;
  const std::vector<bool>* agreed_ = nullptr;  // null if this is the first or the only replica
  std::vector<Tensor> gradients_;              // ready, but not reduced yet
  std::vector<bool> present_;
  BucketFill buckets_;
  std::size_t next_ = 0;  // the first bucket without a node
  struct Launched {
    std::vector<std::size_t> variables;
    std::function<std::vector<Tensor>()> reduced;
  };
  std::vector<Launched> launched_;
};

// Adds collective nodes for one rank of a group.
class TracedRank {
 public:
  TracedRank(CollectiveMember member, DeviceImpl& device);

  // If `inactive`, the rank has no examples and contributes zeros.
  std::vector<Tensor> all_reduce(std::span<const Tensor> tensors, ReduceOp op,
                                 bool inactive = false) const;
  Tensor broadcast(const Tensor& tensor, int root) const;
  // Returns the tensors of all ranks. `sizes` are their sizes along `axis`.
  std::vector<Tensor> all_gather(const Tensor& tensor, std::int64_t axis,
                                 std::vector<std::int64_t> sizes) const;

  // For TracedSync: reduces buckets over the group by `op`.
  ReduceTraced reduce(ReduceOp op, bool inactive = false) const;
  // For TracedSync: averages buckets, with each rank weighted by its number of examples (float32
  // [ranks]). REQUIRES: the host can access the device's memory.
  ReduceTraced average(const Tensor& examples) const;

  DeviceImpl& device() const { return device_; }

 private:
  std::shared_ptr<const CollectiveMember> member_;
  DeviceImpl& device_;
};

}  // namespace tandem
