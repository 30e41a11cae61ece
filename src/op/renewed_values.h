// What recorded launches take of attributes that each run renews: a recording keeps the arguments
// of its launches, so that such values have to be in the device's memory.
#pragma once

#include <cstddef>
#include <vector>

namespace tandem {

// A value that a kernel computes from its attributes: where its bytes belong in the memory of a
// recording, and how they are computed anew.
struct RenewedValue {
  using Compute = void (*)(const void* attrs, void* value);
  const void* attrs;
  Compute compute;
  std::size_t offset;
};

// While it lives, kernels that this thread runs take values of attributes that change from memory
// that is given. Without memory it only finds out how much they take, and values go with the
// launches.
class RenewalScope {
 public:
  RenewalScope() : RenewalScope(nullptr, 0, true) {}
  RenewalScope(const void* memory, std::size_t bytes) : RenewalScope(memory, bytes, false) {}
  ~RenewalScope();
  RenewalScope(const RenewalScope&) = delete;
  RenewalScope& operator=(const RenewalScope&) = delete;

  // The next kernel begins. `renewed`: its attributes change from run to run.
  void begin_kernel(bool renewed);
  // Whether the kernel takes what changes from here, as each must whose attributes do.
  bool complete() const { return !renewed_ || asked_; }
  // What the kernels so far have asked for; bytes in all.
  const std::vector<RenewedValue>& values() const { return values_; }
  std::size_t needed() const { return needed_; }

  // The thread's innermost; null: none.
  static RenewalScope* current();
  // Where the kernel finds the value of so many bytes, 16-byte aligned; null: it goes with the
  // launch. `attrs` are the kernel's. Throws ResourceExhaustedError where there is too little
  // memory.
  const void* place(const void* attrs, RenewedValue::Compute compute, std::size_t bytes);

 private:
  RenewalScope(const void* memory, std::size_t bytes, bool measures);

  RenewalScope* const previous_;
  const std::byte* const memory_;
  const std::size_t bytes_;
  const bool measures_;
  bool renewed_ = false;  // of the kernel
  bool asked_ = false;
  std::vector<RenewedValue> values_;
  std::size_t needed_ = 0;
};

}  // namespace tandem
