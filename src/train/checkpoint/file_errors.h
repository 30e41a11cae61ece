// Errors of files that cannot be loaded.
#pragma once

#include <string>

#include "core/status.h"

namespace tandem {

// Throws the DataLossError of a file whose contents are not as they were written.
[[noreturn]] inline void fail_damaged(const std::string& what, const std::string& why) {
  fail<DataLossError>("[load] '{}' is damaged: {}", what, why);
}

}  // namespace tandem
