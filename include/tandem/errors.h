// The errors that Tandem throws. Every failure that a caller can meet is one of these types; a
// message starts with the operation or object that failed and shows what was expected and what
// came.
//
// Two tiers, as docs/errors.md tells: the types below are for callers (bad input, missing
// resources, failing peers); InternalError is a bug in Tandem itself.
#pragma once

#include <stdexcept>
#include <string>

namespace tandem {

// The base of all of Tandem's errors. `what()` is the message alone; `kind()` is the type's name as
// the field knows it ("InvalidArgumentError"), for logs and command lines.
class Error : public std::runtime_error {
 public:
  Error(const char* kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  const char* kind() const noexcept { return kind_; }

 private:
  const char* kind_;
};

#define TANDEM_DEFINE_ERROR(Name)                                        \
  class Name : public Error {                                            \
   public:                                                               \
    explicit Name(const std::string& message) : Error(#Name, message) {} \
  }

TANDEM_DEFINE_ERROR(InvalidArgumentError);     // the caller passed something that can never work
TANDEM_DEFINE_ERROR(NotFoundError);            // a file, tensor, device or name is not there
TANDEM_DEFINE_ERROR(AlreadyExistsError);       // a name is taken
TANDEM_DEFINE_ERROR(ResourceExhaustedError);   // memory, disk or another bounded resource ran out
TANDEM_DEFINE_ERROR(FailedPreconditionError);  // the object is not in a state that allows the call
TANDEM_DEFINE_ERROR(OutOfRangeError);          // read past the end
TANDEM_DEFINE_ERROR(DeadlineExceededError);    // a wait reached its limit
TANDEM_DEFINE_ERROR(UnavailableError);         // a peer, service or backend is not reachable
TANDEM_DEFINE_ERROR(AbortedError);             // a peer failed and took this call down with it
TANDEM_DEFINE_ERROR(DataLossError);            // stored or transmitted bytes are corrupt
TANDEM_DEFINE_ERROR(UnimplementedError);       // valid, but this backend cannot do it
TANDEM_DEFINE_ERROR(RuntimeError);             // a setting came too late, or the runtime refuses
TANDEM_DEFINE_ERROR(InternalError);            // a bug in Tandem

#undef TANDEM_DEFINE_ERROR

}  // namespace tandem
