// Gradient synchronisation in a function that is being traced: the collectives become nodes.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "graph/collective.h"
#include "sync/gradient_sync.h"
#include "sync/reducer.h"
#include "tandem/variable.h"

namespace tandem {

// The gradients that one collective reduces.
struct TracedBucket {
  std::size_t index = 0;
  bool is_last = false;
  std::vector<std::size_t> variables;
  std::vector<Tensor> gradients;
};
// Adds the nodes that reduce a bucket over the ranks. The function that it returns gives the
// reduced gradients; it is called after all buckets have their nodes.
using ReduceTraced = std::function<std::function<std::vector<Tensor>()>(const TracedBucket&)>;

struct TracedSyncOptions {
  BucketSizes sizes{};
  // Variables without a gradient contribute zeros, so that each bucket is whole.
  bool zeros_for_missing = false;
  // Shared by the replicas of one trace: which variables have a gradient, as the first replica
  // that was traced found it, in the order of the passes. The others follow it. Null: the other
  // ranks are traced elsewhere, and are taken to have the gradients that this one has.
  std::vector<std::vector<bool>>* agreements = nullptr;
  std::size_t pass = 0;  // the number of this one
};

// The buckets of a Reducer, as nodes: a bucket whose gradients are all there becomes one, so that
// the program launches it while the backward pass goes on. Every rank has its buckets in one order.
class TracedSync final : public GradientSync {
 public:
  // Zeros are made on `device`.
  TracedSync(std::vector<Variable> variables, Device& device, ReduceTraced reduce,
             const TracedSyncOptions& options = {});

  void ready(std::size_t index, Tensor gradient) override;
  std::optional<std::vector<Tensor>> finish() override;

 private:
  void launch(bool rest);
  bool agreed(std::size_t index) const { return agreed_ && agreed_->at(index); }

  std::vector<Variable> variables_;
  Device& device_;
  ReduceTraced reduce_;
  TracedSyncOptions options_;
  const std::vector<bool>* agreed_ = nullptr;  // null: this is the first replica, or the only one
  std::vector<Tensor> gradients_;              // those that wait for their bucket
  std::vector<bool> present_;
  BucketFill buckets_;
  std::size_t next_ = 0;  // the first bucket without a node
  struct Launched {
    std::vector<std::size_t> variables;
    std::function<std::vector<Tensor>()> reduced;
  };
  std::vector<Launched> launched_;
};

// The rank of a group that nodes are made for.
class TracedRank {
 public:
  TracedRank(CollectiveMember member, Device& device);

  // `inactive`: the rank has no examples, and contributes zeros.
  std::vector<Tensor> all_reduce(std::span<const Tensor> tensors, ReduceOp op,
                                 bool inactive = false) const;
  Tensor broadcast(const Tensor& tensor, int root) const;
  // Every rank's tensor; `sizes` are theirs along `axis`.
  std::vector<Tensor> all_gather(const Tensor& tensor, std::int64_t axis,
                                 std::vector<std::int64_t> sizes) const;

  // How a TracedSync reduces its buckets over the group: by `op`, or
  ReduceTraced reduce(ReduceOp op, bool inactive = false) const;
  // by an average that weighs each rank by its examples (float32 [ranks]). REQUIRES: a device whose
  // memory the host reaches.
  ReduceTraced average(const Tensor& examples) const;

  Device& device() const { return device_; }

 private:
  std::shared_ptr<const CollectiveMember> member_;
  Device& device_;
};

}  // namespace tandem
