// The backward pass: computes gradients from results to leaves through recorded operations.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "op/record.h"

namespace tandem {

struct BackwardPass {
  // A tensor that the pass starts from, and the gradient with respect to it.
  struct Root {
    GradEdge edge;
    Tensor gradient;
  };
  std::vector<Root> roots;
  // The tensors to compute gradients of. If empty, gradients of all leaves are accumulated in
  // Leaf::grad.
  std::vector<GradEdge> sources;
  // Whether the pass ends at sources, so that no source contributes to the gradient of another.
  bool stop_at_sources = false;
  // Whether it is a tape's, for which results of tapes that have ended are constants. In other
  // passes, reaching one whose record was freed is an error.
  bool of_tape = false;
  bool retain_graph = false;
  bool create_graph = false;  // record the pass itself
  // Called during the pass with the index and gradient of each source as soon as the gradient is
  // complete. run_backward() then returns it undefined. The order depends on the graph alone.
  std::function<void(std::size_t source, Tensor gradient)> on_ready;
  // Provides memory for the gradient of a source that is a leaf, like the function that
  // set_gradient_buffer() takes. May be null.
  std::function<Tensor(std::size_t source)> buffer;
};

// Returns the gradients of `pass.sources`, undefined for those that no root depends on. Each is on
// the device of its source. Gradients are added in the order of the recording, so that the same
// program gives the same bits. Throws RuntimeError if an earlier pass or the end of a tape has
// freed the recorded operations.
std::vector<Tensor> run_backward(const BackwardPass& pass);

// For callbacks of Leaf::on_grad_ready: calls `then` on this thread at the end of the backward
// pass, before run_backward() returns. After a successful pass it calls then(true), and its
// exceptions propagate. If the pass throws, it calls then(false), which must not throw. REQUIRES:
// this thread runs a backward pass.
void after_backward(std::function<void(bool completed)> then);

}  // namespace tandem
