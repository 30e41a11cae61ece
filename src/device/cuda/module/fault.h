// How a kernel reports an invalid input value.
#pragma once

#include <cstdint>

namespace tandem::cuda {

// In host memory that the GPU writes. The first kernel of a stream that finds an invalid value
// claims it. The next wait on the stream throws the error.
struct Fault {
  int claimed = 0;
  int complete = 0;  // the other fields are valid
  // Set by the host: a message with the placeholders {op}, {expected}, {value}, {position} and
  // {limit}; the operation's name; and a description of the expected values.
  const char *text = nullptr, *op = nullptr, *expected = "";
  std::int64_t value = 0, position = 0, limit = 0;
};

// Throws the InvalidArgumentError that the fault describes, and clears it. REQUIRES: complete.
[[noreturn]] void throw_fault(Fault& fault);

}  // namespace tandem::cuda
