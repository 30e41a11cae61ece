/// @file
/// Error classes, named as TensorFlow's and Abseil's status codes. Every error that a caller can
/// get is one of these types. A message starts with the failing operation or object and says what
/// was expected and what it got. docs/errors.md says which errors are recoverable. InternalError is
/// a bug in Tandem.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>

namespace tandem {

/// Base class of all errors that Tandem throws.
class Error : public std::runtime_error {
 public:
  /// An error of type `kind`.
  Error(const char* kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  ~Error() override;  ///< out of line, as those of all errors: many files throw
  /// Name of the type, for example "InvalidArgumentError". what() is the message only.
  const char* kind() const noexcept { return kind_; }

 private:
  const char* kind_;
};

/// @cond
#define TANDEM_DEFINE_ERROR(Name)                                        \
  class Name : public Error {                                            \
   public:                                                               \
    explicit Name(const std::string& message) : Error(#Name, message) {} \
    ~Name() override;                                                    \
  }
/// @endcond

/// The caller passed an argument that is never valid.
class InvalidArgumentError : public Error {
 public:
  /// An error with this message.
  explicit InvalidArgumentError(const std::string& message)
      : InvalidArgumentError("InvalidArgumentError", message) {}
  ~InvalidArgumentError() override;  ///< out of line, as ~Error()

 protected:
  using Error::Error;  ///< for subclasses
};
/// A tensor has a shape that does not fit.
class ShapeError : public InvalidArgumentError {
 public:
  /// An error with this message.
  explicit ShapeError(const std::string& message) : InvalidArgumentError("ShapeError", message) {}
  ~ShapeError() override;  ///< out of line, as ~Error()
};
/// A tensor has a dtype that does not fit.
class DTypeError : public InvalidArgumentError {
 public:
  /// An error with this message.
  explicit DTypeError(const std::string& message) : InvalidArgumentError("DTypeError", message) {}
  ~DTypeError() override;  ///< out of line, as ~Error()
};
/// A file, tensor, device or name does not exist.
TANDEM_DEFINE_ERROR(NotFoundError);
/// A name is in use already.
TANDEM_DEFINE_ERROR(AlreadyExistsError);
/// Memory, disk or another limited resource is exhausted.
TANDEM_DEFINE_ERROR(ResourceExhaustedError);
/// The object is not in a state that allows the call.
TANDEM_DEFINE_ERROR(FailedPreconditionError);
/// A read past the end.
TANDEM_DEFINE_ERROR(OutOfRangeError);
/// A wait reached its timeout.
TANDEM_DEFINE_ERROR(DeadlineExceededError);
/// A peer, service or backend cannot be reached.
TANDEM_DEFINE_ERROR(UnavailableError);
/// A peer failed and the call was aborted.
TANDEM_DEFINE_ERROR(AbortedError);
/// Stored or transmitted data is corrupt.
TANDEM_DEFINE_ERROR(DataLossError);
/// The call is valid, but this backend does not support it.
TANDEM_DEFINE_ERROR(UnimplementedError);
/// A setting came too late, or the runtime does not allow the call.
TANDEM_DEFINE_ERROR(RuntimeError);
/// A bug in Tandem.
TANDEM_DEFINE_ERROR(InternalError);

#undef TANDEM_DEFINE_ERROR

namespace detail {

[[noreturn]] void fail_index(const char* what, std::size_t index, std::size_t size);

// Returns `index`. Throws OutOfRangeError "[what] expected an index below SIZE, got INDEX".
inline std::size_t checked_index(const char* what, std::size_t index, std::size_t size) {
  if (index >= size) [[unlikely]]
    fail_index(what, index, size);
  return index;
}

}  // namespace detail

}  // namespace tandem
