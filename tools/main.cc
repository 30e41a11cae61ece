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

// Errors are one line each, for logs and for scripts.
int report(const char* kind, std::string message) {
  std::replace(message.begin(), message.end(), '\n', ' ');
  std::cerr << "tandem: " << kind << ": " << message << '\n';
  return kFailure;
}

}  // namespace

int main(int argc, char** argv) {
  // A file that grows past the limit is an error to report, not an end without a word.
  std::signal(SIGXFSZ, SIG_IGN);

  CLI::App app("Trains models on one device or on many");
  app.name("tandem");
  app.set_version_flag("--version", "tandem " TANDEM_VERSION);
  app.require_subcommand(1);
  tandem::tools::add_devices_command(app);
  tandem::tools::add_train_command(app);
  tandem::tools::add_explain_command(app);
  tandem::tools::add_run_command(app);
  tandem::tools::add_rendezvous_command(app);
  tandem::tools::add_agent_command(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::RuntimeError& e) {
    return e.get_exit_code();  // what there is to say has been said
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) return app.exit(e);  // --help, --version
    const bool unexpected =
        dynamic_cast<const CLI::ExtrasError*>(&e) || app.get_subcommands().empty();
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
