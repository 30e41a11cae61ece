// The subcommands of `tandem`. Each function adds one to the command line.
#pragma once

namespace CLI {
class App;
}

namespace tandem::tools {

void add_agent_command(CLI::App& app);
void add_checkpoint_command(CLI::App& app);
void add_compile_command(CLI::App& app);
void add_devices_command(CLI::App& app);
void add_explain_command(CLI::App& app);
void add_rendezvous_command(CLI::App& app);
void add_run_command(CLI::App& app);
void add_top_command(CLI::App& app);
void add_train_command(CLI::App& app);

}  // namespace tandem::tools
