// The program of `tandem top`.
#include "command_line.h"
#include "commands.h"

int main(int argc, char** argv) {
  return tandem::tools::run_command_line(argc, argv, tandem::tools::add_top_command);
}
