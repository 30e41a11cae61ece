// Reports invalid values that a kernel finds (indices out of range, divisions by zero).
#pragma once

#include "ops/cuda/launch.h"

namespace tandem::cuda {

// Passed to kernels by value. `text` is the message, a literal with the placeholders {op},
// {expected}, {value}, {position} and {limit}.
struct Refusal {
  Fault* fault;
  const char* text;
  const char *op, *expected;
  std::int64_t limit;
  std::int64_t first;  // the position of the kernel's element 0 in messages

  Refusal(const KernelContext& c, const char* refused, std::int64_t bound = 0,
          std::int64_t first_position = 0, const char* instead = "")
      : fault(device_of(c).fault()),
        text(refused),
        op(c.op->name.data()),
        expected(instead),
        limit(bound),
        first(first_position) {}

  // Only the first report of a fault is kept.
  __device__ void report(std::int64_t value, std::int64_t position) const {
    if (atomicCAS_system(&fault->claimed, 0, 1) != 0) return;
    fault->text = text;
    fault->op = op;
    fault->expected = expected;
    fault->value = value;
    fault->position = first + position;
    fault->limit = limit;
    __threadfence_system();
    *static_cast<volatile int*>(&fault->complete) = 1;
  }
};

}  // namespace tandem::cuda
