#include <CLI/CLI.hpp>
#include <memory>

#include "commands.h"
#include "run/launcher.h"
#include "workload.h"

namespace tandem::tools {

void add_run_command(CLI::App& app) {
  const auto options = std::make_shared<RunOptions>();
  CLI::App* command = app.add_subcommand("run", "Start a program as the ranks of a job");
  require_whole_number(
      *command->add_option("-n,--ranks", options->ranks,
                           "Processes to start; not given: as many as the hosts have slots, or 1"),
      1);
  command->add_option("--hosts", options->hosts, "Where, as in h1:2,h2:2: names and slots");
  command->add_option("--hostfile", options->host_file,
                      "The same in a file: a line a host, NAME slots=SLOTS");
  require_whole_number(
      *command->add_option("--workers", options->workers, "Worker tasks, for TF_CONFIG"), 0);
  require_whole_number(
      *command->add_option("--ps", options->parameter_servers, "Parameter server tasks"), 0);
  command->add_flag("--chief", options->chief, "A chief task besides the workers");
  command->add_flag("--evaluator", options->evaluator, "An evaluator task");
  command
      ->add_option("--bind", options->bind,
                   "core: each rank on its share of the host's cores; none: everywhere")
      ->capture_default_str();
  command->add_option("--output", options->output,
                      "Write what ranks print to files in this directory");
  command
      ->add_option("--env", options->environment,
                   "NAME=VALUE for the ranks, or NAME to pass on to other hosts; repeatable")
      ->take_all()
      ->allow_extra_args(false);  // or it would take the program

  command
      ->add_option("--grace", options->grace,
                   "Seconds that ranks have to end when another has failed")
      ->capture_default_str();
  command
      ->add_option("--start-timeout", options->start_timeout,
                   "Seconds that another host has to answer while the job is started")
      ->capture_default_str();
  command->add_option("--ssh", options->ssh, "What runs a command on another host")
      ->capture_default_str();
  command->add_option("--remote-command", options->remote_command,
                      "The path of tandem on other hosts; not given: as on this one");
  command->add_option("--rendezvous", options->rendezvous,
                      "HOST:PORT of a `tandem rendezvous` for the ranks, with the token in "
                      "TANDEM_JOB_TOKEN; not given: a server in this process");
  command->add_option("program", options->program, "Behind --: the program and its arguments");
  command->callback([options] {
    if (const int code = launch(*options)) throw CLI::RuntimeError(code);
  });
}

}  // namespace tandem::tools
