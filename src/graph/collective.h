// Collectives as nodes of a graph: each rank has a node of its own, and the lanes of a program meet
// in them.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/bucket.h"
#include "comm/communicator.h"
#include "op/op.h"

namespace tandem {

struct Block;

// The ranks that a program's collectives join.
class CollectiveGroup {
 public:
  virtual ~CollectiveGroup() = default;
  // How many ranks there are.
  virtual int size() const = 0;
  // The rank's, for the lane that it is on. A group that reduces alone (below) may have none, and
  // throws InternalError.
  virtual Communicator& communicator(int rank);
  // Whether every rank is a lane of the same program. If not, the others run programs of their own
  // beside it, and whoever started them all does what the next two do.
  virtual bool within_program() const = 0;
  // A run starts: what an earlier one left behind is forgotten.
  virtual void begin() {}
  // A lane has failed: every wait of the others throws AbortedError.
  virtual void abort(const std::string&) {}

  // The rest is for CollectiveReduce, and goes to the rank's communicator unless the group has a
  // way of its own. Whether the arrays that are reduced lie in a bucket:
  virtual bool packs(int rank) { return communicator(rank).packs(); }
  virtual Bucket make_bucket(int rank, std::span<const std::int64_t> counts, DType dtype) {
    return Bucket(communicator(rank), counts, dtype);
  }
  virtual std::shared_ptr<Work> all_reduce(int rank, std::span<const Buffer> parts, ReduceOp op) {
    return communicator(rank).all_reduce(parts, op);
  }
  // Advances collectives under way, without waiting.
  virtual void progress(int rank) { communicator(rank).progress(); }
};

// Which rank of which group a node belongs to.
struct CollectiveMember {
  std::shared_ptr<CollectiveGroup> group;
  int rank = 0;
};

struct CollectiveReduceAttrs {
  ReduceOp op = ReduceOp::kSum;
  // The result is an average, whatever `op` is: the last input, which has no output, tells how many
  // examples each rank had (float32 [ranks], at least one of them all). Of host memory alone.
  bool by_examples = false;
  TANDEM_FIELDS(op, by_examples)
};
struct CollectiveBroadcastAttrs {
  std::int64_t root = 0;
  TANDEM_FIELDS(root)
};

struct CollectiveReduceToAttrs {
  ReduceOp op = ReduceOp::kSum;
  std::int64_t root = 0;
  TANDEM_FIELDS(op, root)
};
struct CollectiveGatherAttrs {
  std::int64_t rank = 0, ranks = 1;
  // Each rank's size along `axis`; empty: they have this rank's shape.
  std::int64_t axis = 0;
  std::vector<std::int64_t> sizes = {};
  TANDEM_FIELDS(rank, ranks, axis, sizes)
};
struct CollectiveSendAttrs {
  std::int64_t peer = 0;
  TANDEM_FIELDS(peer)
};
struct CollectiveReceiveAttrs {
  std::int64_t peer = 0;
  DType dtype = float32;
  Shape shape;
  TANDEM_FIELDS(peer, dtype, shape)
};

// A collective works on the memory of its outputs alone: the kernels put the inputs there, the lane
// does the rest (Node::member). Outputs may share the memory of their inputs.
//
// Any number of inputs, and as many outputs: the rank's share of a bucket, and the results.
extern const OpDef kCollectiveReduce;
extern const OpDef kCollectiveBroadcast;
// One input and its result, which for ranks other than the root is the input.
extern const OpDef kCollectiveReduceTo;
// One input; an output a rank.
extern const OpDef kCollectiveGather;
// An input a rank, and as many outputs, of which the rank's own is the result.
extern const OpDef kCollectiveReduceScatter;
// An input a rank. As many outputs for what is sent, then the results, of the same shapes.
extern const OpDef kCollectiveAllToAll;
// One input; the output is what is sent.
extern const OpDef kCollectiveSend;
extern const OpDef kCollectiveReceive;
// No input; an output that nothing reads, for the wait to have one.
extern const OpDef kCollectiveBarrier;
std::span<const OpDef* const> collective_ops();
// What users call one of these: "all_reduce".
std::string_view user_name_of(const OpDef& collective);

// Starts the collective `op`, one of these other than kCollectiveReduce, on its outputs.
std::shared_ptr<Work> start_collective(const OpDef& op, const void* attrs,
                                       Communicator& communicator, std::span<const Buffer> outputs);

// Of blocks alone: from here on the outputs of a collective, its inputs, hold the results.
extern const OpDef kCollectiveWait;

// For the lane of a kCollectiveReduce, behind its kernel: multiplies the rank's share by its part
// of the examples, where the ranks had different numbers of them, and tells how the shares are to
// be combined.
ReduceOp weigh(const KernelContext& context, int rank);

// Gives each collective of `block` its wait, as late as the first use of a result allows (updates
// of variables come last, in the order in which their gradients are there), lets it set out as soon
// as its inputs are there, and puts the operations in an order in which every rank meets the
// others: each lane goes as far as it can before it waits. Throws InvalidArgumentError when the
// ranks' collectives do not suit each other or wait for each other.
void schedule_collectives(Block& block);

}  // namespace tandem
