// Where in a model the calling thread is.
#pragma once

#include <atomic>
#include <string>

namespace tandem {

struct OpNode;

// The path of the innermost layer whose call the thread is in; null: none.
extern constinit thread_local const std::string* called_layer;
// The recorded operation whose gradient a backward pass computes; null: none.
extern constinit thread_local const OpNode* differentiated;

// Whether the results of operations are searched for NaN and infinities
// (debugging::enable_check_numerics).
extern constinit std::atomic<bool> numerics_checked;
inline bool checks_numerics() { return numerics_checked.load(std::memory_order_relaxed); }

// Sets one of the thread's pointers above while it lives.
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
