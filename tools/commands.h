// The subcommands of `tandem`. Each adds itself to the command line; what it does runs when the
// line has been parsed, and throws tandem::Error, or CLI::RuntimeError to end with an exit code.
#pragma once

namespace CLI {
class App;
}

namespace tandem::tools {

void add_agent_command(CLI::App& app);
void add_devices_command(CLI::App& app);
void add_explain_command(CLI::App& app);
void add_rendezvous_command(CLI::App& app);
void add_run_command(CLI::App& app);
void add_train_command(CLI::App& app);

}  // namespace tandem::tools
