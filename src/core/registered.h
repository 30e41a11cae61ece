// Functions that a directory calls and a higher one defines.
#pragma once

#include <string>
#include <utility>

#include "tandem/errors.h"

namespace tandem {

// A function that is set when the library is loaded. The directory that calls it has the object:
//   constinit Registered<int(int)> twice("twice");
// A higher directory sets it:
//   const bool registered = twice.set([](int number) { return 2 * number; });
template <class Signature>
class Registered;

template <class Result, class... Arguments>
class Registered<Result(Arguments...)> {
 public:
  using Function = Result (*)(Arguments...);

  constexpr explicit Registered(const char* name) : name_(name) {}

  bool set(Function function) {
    function_ = function;
    return true;
  }
  // Throws InternalError if no function was set.
  Result operator()(Arguments... arguments) const {
    if (!function_) throw InternalError(std::string("[") + name_ + "] is not registered");
    return function_(std::forward<Arguments>(arguments)...);
  }

 private:
  const char* name_;
  Function function_ = nullptr;
};

}  // namespace tandem
