// Scratch memory for kernels that are recorded, which has to be where it is for as long as the
// recording is.
#pragma once

#include <cstddef>

namespace tandem {

// While it lives, kernels that this thread runs take their scratch memory (KernelContext::scratch)
// from memory that is given, each from its beginning: they run one after the other. Without memory
// it only finds out how much they take.
class ScratchScope {
 public:
  ScratchScope() : ScratchScope(nullptr, 0, true) {}
  ScratchScope(void* memory, std::size_t bytes) : ScratchScope(memory, bytes, false) {}
  ~ScratchScope();
  ScratchScope(const ScratchScope&) = delete;
  ScratchScope& operator=(const ScratchScope&) = delete;

  // The next kernel begins.
  void begin_kernel() { taken_ = 0; }
  // What the kernels so far would have needed.
  std::size_t needed() const { return needed_; }

  // The thread's innermost; null: none.
  static ScratchScope* current();
  // Null where the scope only finds out. Throws ResourceExhaustedError where it has too
  // little.
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
