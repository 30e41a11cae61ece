#include "comm/group_failure.h"

#include "tandem/errors.h"

namespace tandem {

GroupFailure failure_of(const std::exception& error) {
  if (dynamic_cast<const InvalidArgumentError*>(&error)) return GroupFailure::kInvalidArgument;
  if (dynamic_cast<const DeadlineExceededError*>(&error)) return GroupFailure::kDeadlineExceeded;
  if (dynamic_cast<const UnavailableError*>(&error)) return GroupFailure::kUnavailable;
  if (dynamic_cast<const ResourceExhaustedError*>(&error)) return GroupFailure::kResourceExhausted;
  return GroupFailure::kAborted;
}

void throw_failure(GroupFailure failure, const std::string& text) {
  switch (failure) {
    case GroupFailure::kInvalidArgument: throw InvalidArgumentError(text);
    case GroupFailure::kDeadlineExceeded: throw DeadlineExceededError(text);
    case GroupFailure::kUnavailable: throw UnavailableError(text);
    case GroupFailure::kResourceExhausted: throw ResourceExhaustedError(text);
    default: throw AbortedError(text);
  }
}

}  // namespace tandem
