#include "command_line.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <csignal>
#include <iostream>

#include "tandem/errors.h"
#include "unexpected.h"

namespace tandem::tools {
namespace {

constexpr int kFailure = 2;

// Errors are single lines, which logs and scripts can parse.
int report(const char* kind, std::string message) {
  std::replace(message.begin(), message.end(), '\n', ' ');
  std::cerr << "tandem: " << kind << ": " << message << '\n';
  return kFailure;
}

}  // namespace

void require_whole_number(CLI::Option& option, std::int64_t least) {
  option.check(CLI::Validator(
      [least, name = option.get_name()](const std::string& text) -> std::string {
        std::int64_t value = 0;
        const char* end = text.data() + text.size();
        const auto parsed = std::from_chars(text.data(), end, value);
        if (parsed.ec == std::errc() && parsed.ptr == end && value >= least) return "";
        return fmt::format("expected a whole number of at least {}, got '{}'", least, text);
      },
      "", "whole number"));
}

int run_command_line(int argc, char** argv, void (*add_commands)(CLI::App& app)) {
  // A write past the file size limit then fails with an error instead of killing the process.
  std::signal(SIGXFSZ, SIG_IGN);

  CLI::App app("Train models on one or more devices");
  app.name("tandem");
  app.set_version_flag("--version", "tandem " TANDEM_VERSION);
  app.require_subcommand(1);
  add_commands(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::RuntimeError& e) {
    return e.get_exit_code();  // the command has printed its message
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) return app.exit(e);  // --help, --version
    const bool unexpected = dynamic_cast<const CLI::ExtrasError*>(&e) || lacks_command(app);
    return report("InvalidArgumentError",
                  "[command line] " + (unexpected ? describe_unexpected(app) : e.what()));
  } catch (const Error& e) {
    return report(e.kind(), e.what());
  } catch (const std::bad_alloc&) {
    return report("ResourceExhaustedError", "[tandem] out of memory");
  } catch (const std::exception& e) {
    return report("InternalError", e.what());
  }
  return 0;
}

}  // namespace tandem::tools
