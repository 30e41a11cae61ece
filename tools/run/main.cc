// The program of `tandem run`, `tandem rendezvous`, and `tandem agent` (on other hosts).
#include "commands.h"

int main(int argc, char** argv) {
  return tandem::tools::run_program(argc, argv, [](tandem::tools::Command program) {
    tandem::tools::add_run_command(program);
    tandem::tools::add_rendezvous_command(program);
    tandem::tools::add_agent_command(program);
  });
}
