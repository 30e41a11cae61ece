// The error type with which a group failed, so that every rank throws the same one.
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

// kAborted for errors of any other type.
GroupFailure failure_of(const std::exception& error);
// Throws the error type that `failure` stands for.
[[noreturn]] void throw_failure(GroupFailure failure, const std::string& text);

}  // namespace tandem
