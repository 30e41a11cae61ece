// The backward pass: from results to leaves through what was recorded.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "op/record.h"

namespace tandem {

struct BackwardPass {
  // Where the pass starts, and the gradient of the final value with respect to each.
  struct Root {
    GradEdge edge;
    Tensor gradient;
  };
  std::vector<Root> roots;
  // What gradients are asked for. Empty: those of every leaf, accumulated in Leaf::grad.
  std::vector<GradEdge> sources;
  // Whether nothing behind a source is looked at: no gradient of one source adds to another's.
  bool stop_at_sources = false;
  bool retain_graph = false;
  bool create_graph = false;  // record the pass itself
  // Given the source's place and gradient as soon as nothing can add to it any more, while the pass
  // goes on; run_backward then returns it undefined. The order depends on the graph alone.
  std::function<void(std::size_t source, Tensor gradient)> on_ready;
  // Asked for memory for the gradient of a source that is a leaf, as what set_gradient_place() is
  // given. Null: nobody is asked.
  std::function<Tensor(std::size_t source)> place;
};

// The gradients of `pass.sources`, undefined for those that no root depends on. Each is on the
// device of its source. Sums are made in the order of the recording, so that the same program gives
// the same bits. Throws RuntimeError when what was recorded has been freed by an earlier pass.
std::vector<Tensor> run_backward(const BackwardPass& pass);

// For what Leaf::on_grad_ready calls: `then` is called on this thread when the backward pass that
// runs on it is at its end, before the caller of the pass goes on: then(true), whose exceptions are
// the pass's, or, when the pass ends with an exception, then(false) while that is being handled,
// which must not throw.
// REQUIRES: this thread runs a backward pass.
void after_backward(std::function<void(bool completed)> then);

}  // namespace tandem
