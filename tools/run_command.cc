#include <memory>

#include "commands.h"
#include "programs.h"
#include "run/launcher.h"

namespace tandem::tools {

void add_run_command(Command program) {
  const auto options = std::make_shared<RunOptions>();
  Command command = program.command(kRun.command, kRun.help);
  command
      .option("-n,--ranks", options->ranks, "Number of processes (default: the hosts' slots, or 1)")
      .at_least(1);
  command.option("--hosts", options->hosts,
                 "Hosts and their slots, comma-separated, e.g. h1:2,h2:2");
  command.option("--hostfile", options->host_file, "File with one host per line: NAME slots=SLOTS");
  command.option("--workers", options->workers, "Number of worker tasks; sets TF_CONFIG")
      .at_least(0);
  command
      .option("--ps", options->parameter_servers,
              "Number of parameter servers; requires --chief and --workers")
      .at_least(0);
  command.flag("--chief", options->chief, "Add a chief task");
  command.flag("--evaluator", options->evaluator, "Add an evaluator task");
  command
      .option("--max-restarts", options->max_restarts,
              "Restarts of each worker and parameter server that fails, with --ps (default: 10)")
      .at_least(0);
  command.option("--snapshots", options->snapshots,
                 "Directory of each host in which parameter servers write the snapshots from which "
                 "they continue after a restart (default: TMPDIR, or /tmp)");
  command.flag("--no-tls", options->no_tls,
               "Do not encrypt the connections between hosts, with --ps: for networks that do it");
  command.option("--bind", options->bind,
                 "CPU binding: core gives each rank an equal share of its host's cores, none does "
                 "not bind");
  command.option("--output", options->output,
                 "Directory for the ranks' output, two files per rank (default: stdout and "
                 "stderr)");
  command
      .option("--env", options->environment,
              "Environment variable for the ranks: NAME=VALUE, or NAME to copy its value; may be "
              "repeated")
      .one_per_use();
  command.option("--grace", options->grace,
                 "Seconds from SIGTERM to SIGKILL after a rank has failed");
  command.option("--start-timeout", options->start_timeout,
                 "Seconds to wait for each answer of a remote host while the job starts");
  command.option("--ssh", options->ssh, "Command that runs a command on a remote host");
  command.option("--remote-command", options->remote_command,
                 "Path of tandem on remote hosts (default: the same as on this host)");
  command.option("--rendezvous", options->rendezvous,
                 "HOST:PORT of a running `tandem rendezvous`; requires its secret in "
                 "TANDEM_JOB_TOKEN (default: a server in this process)");
  command.option("program", options->program, "Program and arguments, after --");
  command.runs([options] { return launch(*options); });
}

}  // namespace tandem::tools
