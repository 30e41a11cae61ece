// What the programs of the `tandem` command have in common.
#pragma once

#include <cstdint>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace tandem::tools {

// Parses the command line, and runs the command that it names, one of those that `add_commands` adds.
// Errors are single lines on stderr. Returns the exit code.
int run_command_line(int argc, char** argv, void (*add_commands)(CLI::App& app));

// Restricts `option` to 64-bit integers of at least `least`. CLI11 itself parses "-1" as an
// unsigned number, and clamps numbers that are too large.
void require_whole_number(CLI::Option& option, std::int64_t least);

}  // namespace tandem::tools
