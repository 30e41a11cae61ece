// The `tandem` command.
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <string_view>

#include "commands.h"
#include "programs.h"

namespace tandem::tools {
namespace {

// Replaces this process by the program, or reports that it is not there.
int start(const Program& program, char** argv) {
  std::error_code unreadable;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", unreadable);
  execv((self.parent_path() / program.file).c_str(), argv);
  return report("NotFoundError", std::string("[") + program.command + "] the program '" +
                                     program.file +
                                     "' is not beside 'tandem': scripts/build builds it");
}

void add_commands(Command tandem) {
  add_devices_command(tandem);
  add_train_command(tandem);
  add_explain_command(tandem);
  add_checkpoint_command(tandem);
  for (const Program& program : kPrograms) {  // for --help
    Command command = tandem.command(program.command, program.help);
    if (!*program.help) command.hidden();
  }
}

}  // namespace
}  // namespace tandem::tools

int main(int argc, char** argv) {
  using namespace tandem::tools;
  const std::string_view command = argc > 1 ? argv[1] : "";
  const auto* program = std::find_if(kPrograms.begin(), kPrograms.end(),
                                     [&](const Program& each) { return each.command == command; });
  if (program != kPrograms.end()) return start(*program, argv);
  return run_program(argc, argv, add_commands);
}
