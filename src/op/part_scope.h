// The part of its tensors that an element-wise kernel gets, for its messages.
#pragma once

#include <cstdint>

namespace tandem {

// While it lives, kernels on this thread get tensors that begin at element `first` of the full
// tensors.
class PartScope {
 public:
  explicit PartScope(std::int64_t first) : previous_(current()) { current() = first; }
  ~PartScope() { current() = previous_; }
  PartScope(const PartScope&) = delete;
  PartScope& operator=(const PartScope&) = delete;

  // The innermost scope's `first`; 0 outside scopes.
  static std::int64_t first_element() { return current(); }

 private:
  static std::int64_t& current() {
    thread_local std::int64_t first = 0;
    return first;
  }

  std::int64_t previous_;
};

}  // namespace tandem
