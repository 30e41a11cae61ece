// Control flow in graphs: a node that runs other graphs, its bodies, depending on values.
//
// While a body is traced, tensors that it captures from the surrounding graph become inputs of the
// node. Variables that a branch does not write (for a loop: that no body writes) are read by the
// surrounding graph. Variables that a body writes are inputs as memory (Node::mutates), so that a
// write in a body is a write of the node.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "core/registered.h"
#include "graph/element_pass.h"
#include "graph/node.h"

namespace tandem {

// Starts a pass over the elements that a loop iterates over.
using ElementSource = std::function<std::shared_ptr<ElementPass>()>;

// The state of the random generator when a run of a body began.
struct RandomMark {
  std::uint64_t seed = 0;
  std::uint64_t offset = 0;
  std::vector<std::uint64_t> inside;  // the random operations of each control flow in the body
};

// Numbers the random operations in the bodies of one node. Each run of a body continues at the
// offset where the previous one ended. How many random operations a node runs is known only
// afterwards; later random operations of the graph add total() to their own numbers.
class RandomSequence {
 public:
  struct BodyCount {
    std::uint64_t count = 0;  // random operations per run, without those in its control flow
    std::shared_ptr<RandomSequence> last;  // its last control flow that uses random numbers
  };
  virtual ~RandomSequence() = default;
  virtual const std::vector<BodyCount>& bodies() const = 0;
  // Between enter() and leave() the thread's random operations are numbered by this sequence.
  // `offset`: the number of random operations of the surrounding graph before the node. `replay`:
  // for gradients, where each run generates the numbers of the forward run again.
  virtual void enter(std::uint64_t offset, bool replay) = 0;
  virtual void leave() = 0;
  // Records the generator's state before a run of a body.
  virtual void mark(RandomMark& mark) const = 0;
  // The body of that index has run. `mark`: recorded before the run; may be null.
  virtual void ran(std::size_t body, RandomMark* mark) = 0;
  // The next run of the body of that index generates the numbers of the run that began at `mark`.
  virtual void restore(std::size_t body, const RandomMark& mark) = 0;
  // The random operations of this node and of the control flow before it, in the current run.
  virtual std::uint64_t total() const = 0;
  // Sets these counts to 0: the next run may not include all of these nodes.
  virtual void reset() = 0;
  // A compiled program has run the node, with `count` random operations. Those of the control flow
  // in its bodies count as 0.
  virtual void took(std::uint64_t count) = 0;
};

// A graph that a node runs.
struct Body {
  struct FrameFeed {
    Node::Input tensor;
    std::size_t from = 0;  // index in the frame, see ControlFlow
  };
  // A tensor that receives a gradient.
  struct FrameSource {
    GradEdge edge;
    std::size_t to = 0;  // index in the frame
  };
  RefPtr<GraphImpl> graph;
  std::vector<FrameFeed> feeds;
  std::vector<Node::Input> fetches;
  // Whether updates of variables run. False in gradients, which compute the forward part again.
  bool updates = true;

  std::vector<Tensor> results;            // the fetches, as recorded for gradients
  std::vector<FrameSource> sources;       // each edge once
  std::vector<GradEdge> written_sources;  // variables that this or another body of the loop writes
  std::vector<std::size_t> written;       // inputs of the node: the variables that this body writes
};

// The feeds of a body come from its frame. The frame holds the elements (of the source, or the loop
// variables that the forward loop kept), then the values that a loop carries between iterations,
// then the inputs of the node without the initial carried values.
struct ControlFlow {
  enum class Kind {
    kCond,           // input 0 chooses between bodies 0 (true) and 1
    kWhile,          // body 1 while body 0 returns true
    kForEach,        // body 0 for each element
    kCondGradient,   // input 0 chooses; the bodies are the gradients of the bodies of `forward`
    kWhileGradient,  // body 0 for each iteration of `forward`, last to first
  };
  Kind kind = Kind::kCond;
  std::vector<Body> bodies;
  std::size_t elements = 0;
  std::size_t carried = 0;
  std::int64_t maximum_iterations = -1;  // kWhile; negative if unlimited
  ElementSource source;
  Node* forward = nullptr;
  std::vector<bool> writes;                // for each input, whether it is memory of a variable
  bool effects = false;                    // whether it runs even if its results are unused
  std::shared_ptr<RandomSequence> random;  // null if the bodies use no random numbers
  std::uint64_t offset_before = 0;  // random operations of the surrounding graph before the node

  bool loops() const { return kind != Kind::kCond && kind != Kind::kCondGradient; }
  // Whether the gradient needs the record of `forward`: loop variables or random marks.
  bool needs_record() const {
    return kind == Kind::kWhileGradient || (kind == Kind::kCondGradient && random);
  }
};

// The operation of nodes of this kind. autodiff/ registers it, because the operations name their
// gradients.
extern constinit Registered<const OpDef&(ControlFlow::Kind)> control_flow_op;

// Whether running the node has effects besides computing its outputs.
bool has_effects(const Node& node);
// The variable of `handle` in the outermost graph.
const Node& outermost(const Node& handle);
// The variable handles of `graph` whose memory a node of it writes.
std::vector<Node*> written_handles(const GraphImpl& graph);
// Computes ControlFlow::effects of a forward node. REQUIRES: the other fields are set.
bool find_effects(const ControlFlow& flow);
// Counters (GraphImpl::count).
void add_to(Resource& counter, std::int64_t runs);
// Those that the bodies of a forward node advance, each once.
std::vector<Resource*> counters_of(const ControlFlow& flow);
// How far a run of the node advances the counter at most; nothing if it is above `limit`, or not
// known.
std::optional<std::int64_t> most_counts(const ControlFlow& flow, const Resource& counter,
                                        std::int64_t limit);
// The node of `graph` whose bodies the sequence numbers; null if there is none.
Node* owner_of(const GraphImpl& graph, const RandomSequence* random);

}  // namespace tandem
