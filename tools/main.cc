// The `tandem` command.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <string>
#include <string_view>

#include "command_line.h"
#include "commands.h"
#include "programs.h"
#include "tandem/errors.h"

namespace tandem::tools {
namespace {

// Replaces this process by the program, or returns.
void start(const Program& program, char** argv) {
  std::error_code unreadable;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", unreadable);
  execv((self.parent_path() / program.file).c_str(), argv);
}

// A command that is only parsed if its program could not be started.
void add_program(CLI::App& app, const Program& program) {
  CLI::App* command = app.add_subcommand(program.command, program.help);
  if (!*program.help) command->group("");
  command->prefix_command();
  command->callback([&program] {
    throw NotFoundError(std::string("[") + program.command + "] the program '" + program.file +
                        "' is not beside 'tandem': scripts/build builds it");
  });
}

void add_commands(CLI::App& app) {
  add_devices_command(app);
  add_train_command(app);
  add_explain_command(app);
  add_checkpoint_command(app);
  for (const Program& program : kPrograms) add_program(app, program);
}

}  // namespace
}  // namespace tandem::tools

int main(int argc, char** argv) {
  using namespace tandem::tools;
  const std::string_view command = argc > 1 ? argv[1] : "";
  const auto* program = std::find_if(kPrograms.begin(), kPrograms.end(),
                                     [&](const Program& each) { return each.command == command; });
  if (program != kPrograms.end()) start(*program, argv);
  return run_command_line(argc, argv, add_commands);
}
