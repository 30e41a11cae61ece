// Collectives as nodes of a graph: each rank has a node of its own, and the lanes of a program meet
// in them.
#pragma once

#include <memory>
#include <string>

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
  // The rank's, for the lane that it is on.
  virtual Communicator& communicator(int rank) = 0;
  // Whether every rank is a lane of the same program. If not, the others run programs of their own
  // beside it, and whoever started them all does what the next two do.
  virtual bool within_program() const = 0;
  // A run starts: what an earlier one left behind is forgotten.
  virtual void begin() {}
  // A lane has failed: every wait of the others throws AbortedError.
  virtual void abort(const std::string&) {}
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
  template <class F>
  void fields(F&& f) const {
    f("op", op);
    f("by_examples", by_examples);
  }
};
struct CollectiveBroadcastAttrs {
  std::int64_t root = 0;
  template <class F>
  void fields(F&& f) const {
    f("root", root);
  }
};

// Any number of inputs, and as many outputs: the rank's share of a bucket, and the results. The
// kernels put the inputs where the results will be; the lane does the rest (Node::member). Outputs
// may share the memory of their inputs.
extern const OpDef kCollectiveReduce;
extern const OpDef kCollectiveBroadcast;
// Of blocks alone: from here on the outputs of a collective, its inputs, hold the results.
extern const OpDef kCollectiveWait;

// For the lane of a kCollectiveReduce, behind its kernel: multiplies the rank's share by its part
// of the examples, where the ranks had different numbers of them, and tells how the shares are to
// be combined.
ReduceOp weigh(const KernelContext& context, int rank);

// Gives each collective of `block` its wait, as late as the first use of a result allows, lets it
// set out as soon as its inputs are there, and puts
// the operations in an order in which every rank meets the others: each lane goes as far as it can
// before it waits. Throws InvalidArgumentError when the ranks' collectives do not suit each other
// or wait for each other.
void schedule_collectives(Block& block);

}  // namespace tandem
