// Sets a variable for the time of a scope.
#pragma once

#include <type_traits>
#include <utility>

namespace tandem {

// While it lives, `variable` has another value. For variables of the calling thread, on which it
// must end: const Scoped at_once(context.graph, nullptr).
template <class T>
class [[nodiscard]] Scoped {
 public:
  Scoped(T& variable, std::type_identity_t<T> value)
      : variable_(variable), previous_(std::exchange(variable, std::move(value))) {}
  ~Scoped() { variable_ = std::move(previous_); }
  Scoped(const Scoped&) = delete;
  Scoped& operator=(const Scoped&) = delete;

 private:
  T& variable_;
  T previous_;
};

}  // namespace tandem
