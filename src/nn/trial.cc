#include "nn/trial.h"

#include <algorithm>
#include <exception>
#include <vector>

#include "runtime/trace.h"
#include "tandem/autodiff.h"
#include "tandem/creation.h"

namespace tandem {
namespace {

// Sizes that stand for unknown ones, and are unlikely to be among the known ones.
constexpr std::int64_t kBatch = 3;
constexpr std::int64_t kOthers[] = {13, 17, 19, 23, 29, 31, 37, 41};
static_assert(std::size(kOthers) == kMaxRank);

}  // namespace

bool known_but_for_batch(const Shape& shape) {
  if (!shape.known()) return false;
  for (int axis = 1; axis < shape.rank(); ++axis)
    if (shape.word(axis) < 0) return false;
  return true;
}

Tensor try_on_zeros(std::span<const Shape> shapes, bool required, const TrialCall& call) {
  const OutsideTrace outside_trace;
  NoGradScope no_grad;
  std::exception_ptr error;
  for (const DType dtype : {float32, int32, int64}) {
    std::vector<Tensor> inputs;
    inputs.reserve(shapes.size());
    for (const Shape& shape : shapes) inputs.push_back(zeros(shape, {.dtype = dtype}));
    try {
      return call(inputs);
    } catch (const std::exception&) {
      if (!error) error = std::current_exception();
    }
  }
  if (required) std::rethrow_exception(error);
  return {};
}

Shape shape_on_zeros(std::span<const Shape> shapes, const TrialCall& call) {
  std::vector<Shape> trials(shapes.begin(), shapes.end());
  std::vector<std::int64_t> known, stand_ins;
  for (const Shape& shape : shapes)
    known.insert(known.end(), shape.words().begin(), shape.words().end());
  bool open_batch = false;
  for (Shape& trial : trials) {
    if (!trial.known()) return {};
    std::size_t next = 0;  // the same unknown size along an axis of all inputs
    for (int axis = 0; axis < trial.rank(); ++axis) {
      if (trial.word(axis) >= 0) continue;
      if (axis == 0) {
        open_batch = true;
        trial.set(0, kBatch);
        continue;
      }
      while (next + 1 < std::size(kOthers) &&
             std::ranges::find(known, kOthers[next]) != known.end())
        ++next;
      trial.set(axis, kOthers[next]);
      stand_ins.push_back(kOthers[next++]);
    }
  }
  const Tensor value = try_on_zeros(trials, stand_ins.empty(), call);
  if (!value.defined()) return {};
  Shape result = value.shape();
  for (int axis = 0; axis < result.rank(); ++axis) {
    const bool batch = axis == 0 && open_batch && result.word(0) == kBatch;
    if (batch || std::ranges::find(stand_ins, result.word(axis)) != stand_ins.end())
      result.set(axis, -1);
  }
  return result;
}

}  // namespace tandem
