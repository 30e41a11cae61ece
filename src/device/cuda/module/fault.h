// How a kernel tells that a value it met is one that the operation refuses.
#pragma once

#include <cstdint>

namespace tandem::cuda {

// In memory of the host that the GPU writes. The first kernel of a stream that finds something
// claims it; whoever waits for the stream next gets the error.
struct Fault {
  int claimed = 0;
  int told = 0;  // the rest is there
  // The host's: a text with {op}, {expected}, {value}, {position} and {limit}; the name of the
  // operation; and the values that it expects instead, in words.
  const char *text = nullptr, *op = nullptr, *expected = "";
  std::int64_t value = 0, position = 0, limit = 0;
};

// Throws InvalidArgumentError with what the fault tells, and clears it. REQUIRES: told.
[[noreturn]] void throw_fault(Fault& fault);

}  // namespace tandem::cuda
