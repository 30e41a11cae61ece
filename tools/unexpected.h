// The error message for a command line with unrecognized arguments.
#pragma once

#include <string>

namespace CLI {
class App;
}

namespace tandem::tools {

// Names the first argument that `app` did not recognize, or the missing command, and suggests what
// may have been meant.
std::string describe_unexpected(const CLI::App& app);

// Whether the command line names no command, or none of the commands that its command has.
bool lacks_command(const CLI::App& app);

}  // namespace tandem::tools
