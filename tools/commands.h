// The subcommands of `tandem`. Each function adds one to the command line.
#pragma once

#include "options.h"

namespace tandem::tools {

void add_agent_command(Command program);
void add_checkpoint_command(Command program);
void add_compile_command(Command program);
void add_devices_command(Command program);
void add_explain_command(Command program);
void add_rendezvous_command(Command program);
void add_run_command(Command program);
void add_top_command(Command program);
void add_train_command(Command program);

}  // namespace tandem::tools
