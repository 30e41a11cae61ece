// Structures of the host that begin with their size.
#pragma once

#include <algorithm>
#include <cstring>

#include "core/status.h"

namespace tandem::c {

// The largest structure that a later version may have.
inline constexpr std::size_t kMostBytes = 4096;

// The host's options, with the members of `defaults` after those that it knows. `given` may be
// null. Throws InvalidArgumentError.
template <class T>
T known_options(const T* given, const T& defaults, const char* what, const char* initializer) {
  if (!given) return defaults;
  if (given->size < sizeof(std::size_t) || given->size > kMostBytes)
    fail<InvalidArgumentError>("[{}] expected options that TANDEM_{} initializes, got a size of {}",
                               what, initializer, given->size);
  T options = defaults;
  std::memcpy(&options, given, std::min(given->size, sizeof(T)));
  return options;
}

// Throws InvalidArgumentError unless `report` is null or has a size.
template <class T>
void expect_report(const T* report, const char* what, const char* initializer) {
  if (report) known_options(report, *report, what, initializer);
}

// REQUIRES: expect_report().
template <class T>
void write_report(T* report, T values) {
  if (!report) return;
  values.size = report->size;
  std::memcpy(report, &values, std::min(report->size, sizeof(T)));
}

}  // namespace tandem::c
