// Gradients computed where they are wanted, such as in a bucket that will be all-reduced.
#pragma once

#include <functional>

#include "op/record.h"

namespace tandem {

// Asks `place`, in a backward() pass, for memory for the leaf's gradient: a tensor like the leaf's
// whose elements nobody reads before the gradient is announced, or an undefined one. A gradient
// need not end there. Null: nobody is asked any more. Thread-safe.
void set_gradient_place(const Leaf& leaf, std::function<Tensor()> place);

// The place that a leaf has by set_gradient_place().
Tensor gradient_place_of(const Leaf& leaf);

// Of the pass that the calling thread runs: where a leaf's gradient is wanted. Null: nobody is
// asked.
using GradientPlaces = std::function<Tensor(const Leaf& leaf)>;
extern constinit thread_local const GradientPlaces* gradient_places;

// For gradient functions: while it lives, the next operation whose first result is like input
// `input` writes it where that input's gradient is wanted.
class GradientPlaceScope {
 public:
  GradientPlaceScope(const GradContext& context, int input);
  ~GradientPlaceScope();
  GradientPlaceScope(const GradientPlaceScope&) = delete;
  GradientPlaceScope& operator=(const GradientPlaceScope&) = delete;
};

// For dispatch: the place, if there is one for such a result on this device; only once.
extern constinit thread_local bool gradient_place_open;
Tensor take_gradient_place(const TensorSpec& spec, const Device& device);

}  // namespace tandem
