#include "nn/trial.h"

#include <algorithm>
#include <exception>
#include <vector>

#include "core/dim.h"
#include "graph/structural_ops.h"
#include "runtime/trace.h"
#include "tandem/autodiff.h"
#include "tandem/creation.h"

namespace tandem {
namespace {

// The first result of `make_input` for all shapes that `call` takes; undefined if there is none.
template <class F>
Tensor try_dtypes(std::span<const Shape> shapes, bool required, const TrialCall& call,
                  const F& make_input) {
  NoGradScope no_grad;
  std::exception_ptr error;
  for (const DType dtype : {float32, int32, int64}) {
    std::vector<Tensor> inputs;
    inputs.reserve(shapes.size());
    for (const Shape& shape : shapes) inputs.push_back(make_input(shape, dtype));
    try {
      return call(inputs);
    } catch (const std::exception&) {
      if (!error) error = std::current_exception();
    }
  }
  if (required) std::rethrow_exception(error);
  return {};
}

}  // namespace

Tensor trace_call(std::span<const Shape> shapes, const TrialCall& call) {
  if (!std::ranges::all_of(shapes, &Shape::known)) return {};
  const OutsideTrace outside_trace;
  // The variables of a session's graph are made in it.
  const bool of_session = context.graph != nullptr;
  const auto graph = of_session ? RefPtr<GraphImpl>(context.graph) : make_ref<GraphImpl>();
  TraceFrame frame{.outside = &Generator::current(), .name = "trial"};
  Generator generator({.seed = 0, .offset = 0});
  const Scoped graph_scope(context.graph, graph.get());
  const Scoped generator_scope(context.generator, of_session ? context.generator : &generator);
  const Scoped frame_scope(context.trace, of_session ? nullptr : &frame);
  return try_dtypes(shapes, false, call, [&](Shape shape, DType dtype) {
    for (int axis = 0; axis < shape.rank(); ++axis)  // sizes of other graphs are new symbols
      if (shape.word(axis) < 0) shape.set(axis, -1);
    return graph->tensor(graph->add(kPlaceholder, SpecAttrs{dtype, shape}, {}, {.name = "input"}));
  });
}

Tensor call_on_zeros(std::span<const Shape> shapes, std::int64_t batch, bool required,
                     const TrialCall& call) {
  const OutsideTrace outside_trace;
  return try_dtypes(shapes, required, call, [&](Shape shape, DType dtype) {
    if (shape.rank() > 0 && shape.word(0) < 0) shape.set(0, batch);
    return zeros(shape, {.dtype = dtype});
  });
}

bool known_but_for_batch(const Shape& shape) {
  return shape.known() && (shape.rank() == 0 || shape.without_leading(1).fully_defined());
}

Shape shape_of_call(std::span<const Shape> shapes, const TrialCall& call) {
  const bool open = !std::ranges::all_of(shapes, &Shape::fully_defined);
  if (open) {
    if (const Tensor traced = trace_call(shapes, call); traced.defined()) {
      Shape result = traced.shape();
      for (int axis = 0; axis < result.rank(); ++axis)
        if (dim::is_unknown(result.word(axis))) result.set(axis, -1);
      return result;
    }
    if (!std::ranges::all_of(shapes, known_but_for_batch)) return {};
  }
  Shape result = call_on_zeros(shapes, 4, true, call).shape();
  if (!open) return result;
  const Shape other = call_on_zeros(shapes, 12, true, call).shape();
  if (other.rank() != result.rank()) return {};
  for (int axis = 0; axis < result.rank(); ++axis)
    if (result.word(axis) != other.word(axis)) result.set(axis, -1);
  return result;
}

}  // namespace tandem
