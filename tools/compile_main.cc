// The program of `tandem compile`.
#include "commands.h"

int main(int argc, char** argv) {
  return tandem::tools::run_program(argc, argv, tandem::tools::add_compile_command);
}
