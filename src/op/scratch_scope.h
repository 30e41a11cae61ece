// Scratch memory for kernels in CUDA graphs, which must stay at one address as long as the CUDA
// graph.
#pragma once

#include <cstddef>

namespace tandem {

// While it lives, kernels that this thread runs take their scratch memory (KernelContext::scratch)
// from `memory`. They run one after another, so each starts at its beginning. Without memory it
// only measures the required size.
class ScratchScope {
 public:
  ScratchScope() : ScratchScope(nullptr, 0, true) {}
  ScratchScope(void* memory, std::size_t bytes) : ScratchScope(memory, bytes, false) {}
  ~ScratchScope();
  ScratchScope(const ScratchScope&) = delete;
  ScratchScope& operator=(const ScratchScope&) = delete;

  // Starts the next kernel.
  void begin_kernel() { taken_ = 0; }
  // The largest size that a kernel has needed so far.
  std::size_t needed() const { return needed_; }

  // The thread's innermost scope; null if there is none.
  static ScratchScope* current();
  // Null if the scope only measures. Throws ResourceExhaustedError if the memory is too small.
  void* take(std::size_t bytes);

 private:
  ScratchScope(void* memory, std::size_t bytes, bool measures);

  ScratchScope* const previous_;
  std::byte* const memory_;
  const std::size_t bytes_;
  const bool measures_;
  std::size_t taken_ = 0;
  std::size_t needed_ = 0;
};

}  // namespace tandem
