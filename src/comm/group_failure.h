// What kind of error a group failed with, so that every rank throws the same.
#pragma once

#include <cstdint>
#include <exception>
#include <string>

namespace tandem {

enum class GroupFailure : std::uint32_t {
  kNone,
  kInvalidArgument,
  kDeadlineExceeded,
  kAborted,
  kUnavailable,
  kResourceExhausted,
};

// kAborted for whatever has no kind of its own.
GroupFailure failure_of(const std::exception& error);
// The error of that kind.
[[noreturn]] void throw_failure(GroupFailure failure, const std::string& text);

}  // namespace tandem
