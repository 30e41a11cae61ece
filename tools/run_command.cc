#include <CLI/CLI.hpp>
#include <memory>

#include "command_line.h"
#include "commands.h"
#include "programs.h"
#include "run/launcher.h"

namespace tandem::tools {

void add_run_command(CLI::App& app) {
  const auto options = std::make_shared<RunOptions>();
  CLI::App* command = app.add_subcommand(kRun.command, kRun.help);
  require_whole_number(
      *command->add_option("-n,--ranks", options->ranks,
                           "Number of processes (default: the hosts' slots, or 1)"),
      1);
  command->add_option("--hosts", options->hosts,
                      "Hosts and their slots, comma-separated, e.g. h1:2,h2:2");
  command->add_option("--hostfile", options->host_file,
                      "File with one host per line: NAME slots=SLOTS");
  require_whole_number(
      *command->add_option("--workers", options->workers, "Number of worker tasks; sets TF_CONFIG"),
      0);
  require_whole_number(*command->add_option("--ps", options->parameter_servers,
                                            "Number of parameter servers; requires --chief and "
                                            "--workers"),
                       0);
  command->add_flag("--chief", options->chief, "Add a chief task");
  command->add_flag("--evaluator", options->evaluator, "Add an evaluator task");
  require_whole_number(
      *command->add_option("--max-restarts", options->max_restarts,
                           "Restarts of each worker and parameter server that fails, with --ps "
                           "(default: 10)"),
      0);
  command->add_option("--journals", options->journals,
                      "Directory of each host in which parameter servers keep what they need for a "
                      "restart (default: TMPDIR, or /tmp)");
  command->add_flag("--tls", options->tls, "Encrypt the connections between the tasks, with --ps");
  command
      ->add_option("--bind", options->bind,
                   "CPU binding: core gives each rank an equal share of its host's cores, none "
                   "does not bind")
      ->capture_default_str();
  command->add_option(
      "--output", options->output,
      "Directory for the ranks' output, two files per rank (default: stdout and stderr)");
  command
      ->add_option("--env", options->environment,
                   "Environment variable for the ranks: NAME=VALUE, or NAME to copy its value; may "
                   "be repeated")
      ->take_all()
      ->allow_extra_args(false);  // otherwise it would consume the program

  command
      ->add_option("--grace", options->grace,
                   "Seconds from SIGTERM to SIGKILL after a rank has failed")
      ->capture_default_str();
  command
      ->add_option("--start-timeout", options->start_timeout,
                   "Seconds to wait for each answer of a remote host while the job starts")
      ->capture_default_str();
  command->add_option("--ssh", options->ssh, "Command that runs a command on a remote host")
      ->capture_default_str();
  command->add_option("--remote-command", options->remote_command,
                      "Path of tandem on remote hosts (default: the same as on this host)");
  command->add_option("--rendezvous", options->rendezvous,
                      "HOST:PORT of a running `tandem rendezvous`; requires its secret in "
                      "TANDEM_JOB_TOKEN (default: a server in this process)");
  command->add_option("program", options->program, "Program and arguments, after --");
  command->callback([options] {
    if (const int code = launch(*options)) throw CLI::RuntimeError(code);
  });
}

}  // namespace tandem::tools
