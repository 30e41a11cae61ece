// The place in the model that the calling thread executes, for errors about NaN and infinities.
#pragma once

#include <atomic>
#include <string>

namespace tandem {

struct OpNode;

// The path of the innermost layer that the thread calls; null outside layers.
extern constinit thread_local const std::string* called_layer;
// The operation whose gradient the thread computes; null outside backward passes.
extern constinit thread_local const OpNode* differentiated;

// Whether results of operations are checked for NaN and infinities
// (debugging::enable_check_numerics).
extern constinit std::atomic<bool> numerics_checked;
inline bool checks_numerics() { return numerics_checked.load(std::memory_order_relaxed); }

// Sets one of the pointers above while it lives.
template <class T>
class PointerScope {
 public:
  PointerScope(const T*& pointer, const T* value) : pointer_(pointer), previous_(pointer) {
    pointer = value;
  }
  ~PointerScope() { pointer_ = previous_; }
  PointerScope(const PointerScope&) = delete;
  PointerScope& operator=(const PointerScope&) = delete;

 private:
  const T*& pointer_;
  const T* previous_;
};

}  // namespace tandem
