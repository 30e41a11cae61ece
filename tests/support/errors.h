// Errors that tests expect.
#pragma once

#include <gtest/gtest.h>

#include <exception>
#include <initializer_list>
#include <string>

#include "tandem/errors.h"

namespace tandem::testing {

// The exception of `body` as "KIND: message"; "no error" if it returns.
template <class F>
std::string any_error_of(F&& body) {
  try {
    body();
  } catch (const Error& error) {
    return std::string(error.kind()) + ": " + error.what();
  } catch (const std::exception& error) {
    return std::string("std::exception: ") + error.what();
  }
  return "no error";
}

// The message of the E that `body` throws; for other exceptions the result of any_error_of().
template <class E, class F>
std::string error_of(F&& body) {
  std::string message;
  const std::string other = any_error_of([&] {
    try {
      body();
    } catch (const E& error) {
      message = error.what();
    }
  });
  return message.empty() ? other : message;
}

// Expects `text` to contain every part.
inline void expect_parts(const std::string& text, std::initializer_list<const char*> parts) {
  for (const char* part : parts) EXPECT_NE(text.find(part), std::string::npos) << text;
}

}  // namespace tandem::testing
