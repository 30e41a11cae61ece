// Advice in the error for reading the elements of a symbolic tensor.
#pragma once

#include <string_view>

namespace tandem::detail {

// While it lives, `text` is added to that error on the calling thread.
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
