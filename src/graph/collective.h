// Collectives as nodes of a graph. Each rank has a node of its own; the lanes of a program run the
// ranks' nodes at the same time.
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

// The ranks that communicate in the collectives of a program.
class CollectiveGroup {
 public:
  virtual ~CollectiveGroup() = default;
  virtual int size() const = 0;
  // The rank's communicator, used by the rank's lane. Throws InternalError for a group that
  // implements the reductions below itself and has none.
  virtual Communicator& communicator(int rank);
  // Whether every rank is a lane of the same program. If not, the other ranks run programs of their
  // own, and the caller that started these programs does the work of begin() and abort().
  virtual bool within_program() const = 0;
  // Called when a run starts. Clears the state of an earlier run.
  virtual void begin() {}
  // Called when a lane has failed. Every wait of the others throws AbortedError.
  virtual void abort(const std::string&) {}

  // The functions below are for CollectiveReduce. By default they use the rank's communicator.
  //
  // Whether the reduced arrays are packed in a bucket.
  virtual bool packs(int rank) { return communicator(rank).packs(); }
  virtual Bucket make_bucket(int rank, std::span<const std::int64_t> counts, DType dtype) {
    return Bucket(communicator(rank), counts, dtype);
  }
  virtual std::shared_ptr<CollectiveWork> all_reduce(int rank, std::span<const Buffer> parts,
                                                     ReduceOp op) {
    return communicator(rank).all_reduce(parts, op);
  }
  // Makes progress on launched collectives, without blocking.
  virtual void progress(int rank) { communicator(rank).progress(); }
};

// The group and the rank of a collective node.
struct CollectiveMember {
  std::shared_ptr<CollectiveGroup> group;
  int rank = 0;
};

struct CollectiveReduceAttrs {
  ReduceOp op = ReduceOp::kSum;
  // If true, the result is an average, weighted by the examples of each rank, whatever `op` is. The
  // last input then holds the number of examples of each rank (float32 [ranks], in host memory; the
  // sum is at least 1) and has no output.
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
  // Each rank's size along `axis`. Empty if all ranks have the same shape.
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

// A collective works in place on its outputs: the kernel copies the inputs there, and the lane
// launches the collective (Node::member). Outputs may share the memory of their inputs.
//
// Any number of inputs, and as many outputs: one bucket.
extern const OpDef kCollectiveReduce;
extern const OpDef kCollectiveBroadcast;
// One input and one output. On ranks other than the root the output is the input.
extern const OpDef kCollectiveReduceTo;
// One input; one output per rank.
extern const OpDef kCollectiveGather;
// One input and one output per rank. The output at the rank's own index is the result.
extern const OpDef kCollectiveReduceScatter;
// One input per rank. One output per rank that is sent, then one result per rank, of the same
// shapes.
extern const OpDef kCollectiveAllToAll;
// One input. The output holds the elements that are sent.
extern const OpDef kCollectiveSend;
extern const OpDef kCollectiveReceive;
// No input. One unused output, because the wait operation needs an input.
extern const OpDef kCollectiveBarrier;
std::span<const OpDef* const> collective_ops();
// The name in the API: "all_reduce".
std::string_view user_name_of(const OpDef& collective);

// Launches `op`, one of the collectives above other than kCollectiveReduce, on its outputs.
std::shared_ptr<CollectiveWork> start_collective(const OpDef& op, const void* attrs,
                                                 Communicator& communicator,
                                                 std::span<const Buffer> outputs);

// Waits for a collective, in blocks only. Its inputs are the outputs of the collective, which hold
// the results afterwards.
extern const OpDef kCollectiveWait;

// Called by the lane of a kCollectiveReduce after its kernel. Multiplies the rank's values by its
// fraction of the examples if ranks have different numbers of examples. Returns the reduction to
// use.
ReduceOp weigh(const KernelContext& context, int rank);

}  // namespace tandem
