// The program of `tandem run`, `tandem rendezvous`, and `tandem agent`, which `tandem run` starts on other hosts.
#include "command_line.h"
#include "commands.h"

int main(int argc, char** argv) {
  return tandem::tools::run_command_line(argc, argv, [](CLI::App& app) {
    tandem::tools::add_run_command(app);
    tandem::tools::add_rendezvous_command(app);
    tandem::tools::add_agent_command(app);
  });
}
