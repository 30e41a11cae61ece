// What to tell someone who asks for the elements of a symbolic tensor.
#pragma once

#include <string_view>

namespace tandem::detail {

// What the error tells the calling thread's user, beside what it tells everyone.
class SymbolicAdvice {
 public:
  explicit SymbolicAdvice(std::string_view text);
  ~SymbolicAdvice();
  SymbolicAdvice(const SymbolicAdvice&) = delete;
  SymbolicAdvice& operator=(const SymbolicAdvice&) = delete;

 private:
  std::string_view previous_;
};

}  // namespace tandem::detail
