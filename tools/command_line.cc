// The `tandem` command.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <iostream>

#include "commands.h"
#include "tandem/errors.h"
#include "unexpected.h"

namespace {

constexpr int kFailure = 2;

// Errors are single lines, which logs and scripts can parse.
int report(const char* kind, std::string message) {
  std::replace(message.begin(), message.end(), '\n', ' ');
  std::cerr << "tandem: " << kind << ": " << message << '\n';
  return kFailure;
}

}  // namespace

int main(int argc, char** argv) {
  // A write past the file size limit then fails with an error instead of killing the process.
  std::signal(SIGXFSZ, SIG_IGN);

  CLI::App app("Train models on one or more devices");
  app.name("tandem");
  app.set_version_flag("--version", "tandem " TANDEM_VERSION);
  app.require_subcommand(1);
  tandem::tools::add_devices_command(app);
  tandem::tools::add_train_command(app);
  tandem::tools::add_explain_command(app);
  tandem::tools::add_compile_command(app);
  tandem::tools::add_checkpoint_command(app);
  tandem::tools::add_run_command(app);
  tandem::tools::add_top_command(app);
  tandem::tools::add_rendezvous_command(app);
  tandem::tools::add_agent_command(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::RuntimeError& e) {
    return e.get_exit_code();  // the command has printed its message
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) return app.exit(e);  // --help, --version
    const bool unexpected =
        dynamic_cast<const CLI::ExtrasError*>(&e) || tandem::tools::lacks_command(app);
    return report(
        "InvalidArgumentError",
        "[command line] " + (unexpected ? tandem::tools::describe_unexpected(app) : e.what()));
  } catch (const tandem::Error& e) {
    return report(e.kind(), e.what());
  } catch (const std::bad_alloc&) {
    return report("ResourceExhaustedError", "[tandem] out of memory");
  } catch (const std::exception& e) {
    return report("InternalError", e.what());
  }
  return 0;
}
