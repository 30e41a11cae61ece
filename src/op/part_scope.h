// Which part of its tensors an element-wise kernel is given, for its messages.
#pragma once

#include <cstdint>

namespace tandem {

// While it lives, kernels on this thread are given tensors that begin at element `first` of the
// whole ones.
class PartScope {
 public:
  explicit PartScope(std::int64_t first) : previous_(current()) { current() = first; }
  ~PartScope() { current() = previous_; }
  PartScope(const PartScope&) = delete;
  PartScope& operator=(const PartScope&) = delete;

  // 0 outside of all scopes.
  static std::int64_t first_element() { return current(); }

 private:
  static std::int64_t& current() {
    thread_local std::int64_t first = 0;
    return first;
  }

  std::int64_t previous_;
};

}  // namespace tandem
