// Control flow in graphs: a node that runs other graphs, its bodies, as values decide.
//
// While a body is traced, what it takes from the graph around it becomes an input of the node.
// Variables that a branch does not write (of a loop: none of its bodies) are read by the graph
// around; those that a body writes are inputs as memory (Node::mutates), so that a write in a body
// is a write of the node.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "graph/node.h"

namespace tandem {

// What a loop over elements goes over.
class ElementSource {
 public:
  class Pass {
   public:
    virtual ~Pass() = default;
    // The next element's tensors, on whatever devices; false at the end.
    virtual bool next(std::vector<Tensor>& element) = 0;
  };
  virtual ~ElementSource() = default;
  virtual std::unique_ptr<Pass> start() = 0;
};

// Where the draws of random operations stood when a body ran.
struct DrawMark {
  std::uint64_t seed = 0;
  std::uint64_t number = 0;
  std::vector<std::uint64_t> inside;  // taken by the control flow inside the body
};

// Numbers the draws of one node's bodies: each run of a body goes on where the one before ended.
// How many draws a node takes is known only when it has run; what draws behind it asks total().
class DrawSequence {
 public:
  struct OfBody {
    std::uint64_t draws = 0;               // each run's, beside its control flow
    std::shared_ptr<DrawSequence> behind;  // its latest control flow that draws
  };
  // `behind`: that of the control flow before the node in its graph. Defined by the runtime.
  static std::shared_ptr<DrawSequence> make(std::shared_ptr<DrawSequence> behind,
                                            std::vector<OfBody> bodies);

  virtual ~DrawSequence() = default;
  virtual const std::vector<OfBody>& bodies() const = 0;
  // Draws of bodies are the sequence's between these. `number`: how many the graph around has taken
  // by itself up to the node. `replay`: for going back, where each run draws what it drew before.
  virtual void enter(std::uint64_t number, bool replay) = 0;
  virtual void leave() = 0;
  // Takes down where a body's draws start.
  virtual void mark(DrawMark& mark) const = 0;
  // The body of that index has run, from `mark` on where one was taken.
  virtual void ran(std::size_t body, DrawMark* mark) = 0;
  // The body of that index is to draw what it drew from `mark` on.
  virtual void restore(std::size_t body, const DrawMark& mark) = 0;
  // What this node and those before it in its graph have taken in the present run.
  virtual std::uint64_t total() const = 0;
  // Forgets what they have taken: they may not be part of the next run.
  virtual void reset() = 0;
};

// A graph that a node runs.
struct Body {
  struct Feed {
    Node::Input tensor;
    std::size_t from = 0;  // of the frame, see ControlFlow
  };
  // Where gradients of the results go.
  struct Source {
    GradEdge edge;
    std::size_t to = 0;  // of the frame
  };
  RefPtr<GraphImpl> graph;
  std::vector<Feed> feeds;
  std::vector<Node::Input> fetches;
  // Also run what writes variables. Not on the way back, which computes the forward part again.
  bool updates = true;

  std::vector<Tensor> results;            // the fetches, as they were recorded
  std::vector<Source> sources;            // each edge once
  std::vector<GradEdge> written_sources;  // variables that it writes, or another body of the loop
  std::vector<std::size_t> written;       // those that it writes itself: inputs of the node
};

// What a body may be fed with is its frame: the elements (of the source, or the loop variables that
// a loop kept), then what a loop carries from iteration to iteration, then the inputs of the node
// behind those that the loop starts from.
struct ControlFlow {
  enum class Kind {
    kCond,           // input 0 chooses between bodies 0 (true) and 1
    kWhile,          // body 1, as long as body 0 gives true
    kForEach,        // body 0 for each element
    kCondGradient,   // input 0 chooses; the bodies go back through those of `forward`
    kWhileGradient,  // body 0 for each iteration of `forward`, last to first
  };
  Kind kind = Kind::kCond;
  std::vector<Body> bodies;
  std::size_t elements = 0;
  std::size_t carried = 0;
  std::int64_t maximum_iterations = -1;  // kWhile; negative: no limit
  std::shared_ptr<ElementSource> source;
  Node* forward = nullptr;
  std::vector<bool> writes;             // of the inputs: memory of variables
  bool effects = false;                 // runs even where nothing uses its results
  std::shared_ptr<DrawSequence> draws;  // null: the bodies draw nothing
  std::uint64_t draws_before = 0;       // by the graph around, up to the node

  bool loops() const { return kind != Kind::kCond && kind != Kind::kCondGradient; }
  // Whether what `forward` left behind is needed: kept loop variables, or where its draws stood.
  bool needs_record() const {
    return kind == Kind::kWhileGradient || (kind == Kind::kCondGradient && draws);
  }
};

// The operation of nodes of this kind. Defined with their gradients, by autodiff.
const OpDef& control_flow_op(ControlFlow::Kind kind);

// Whether running the node does more than to give its outputs.
bool has_effects(const Node& node);
// The same variable in the outermost graph.
const Node& outermost(const Node& handle);
// The handles among the nodes of `graph` whose memory one of them writes.
std::vector<Node*> written_handles(const GraphImpl& graph);
// Whether a forward node runs even where nothing uses its results. REQUIRES: all else is there.
bool find_effects(const ControlFlow& flow);
// The node of `graph` whose bodies draw from the sequence; null: there is none.
Node* owner_of(const GraphImpl& graph, const DrawSequence* draws);

}  // namespace tandem
