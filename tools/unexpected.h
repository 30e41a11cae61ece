// The error for a command line with unexpected words.
#pragma once

#include <string>

namespace CLI {
class App;
}

namespace tandem::tools {

// The message for the words that were left over when `app` was parsed, or for the missing command:
// the first of them, what it may have been meant to be, and what there is.
std::string describe_unexpected(const CLI::App& app);

}  // namespace tandem::tools
