#include "options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <csignal>
#include <iostream>
#include <optional>
#include <string_view>

#include "core/joined.h"
#include "core/nearest.h"
#include "tandem/errors.h"

namespace tandem::tools {
namespace {

constexpr int kFailure = 2;

// "; did you mean '--model'?" for `prefix` "--"; empty if no name is similar.
std::string suggestion(std::string_view word, const std::vector<std::string>& known,
                       std::string_view prefix = "") {
  const std::vector<std::string_view> names(known.begin(), known.end());
  word.remove_prefix(std::min(word.find_first_not_of('-'), word.size()));
  const std::string_view name = nearest(word, names);
  return name.empty() ? std::string() : fmt::format("; did you mean '{}{}'?", prefix, name);
}

std::string unknown_command(const CLI::App& app, const std::vector<std::string>& left) {
  std::vector<std::string> commands;
  for (const CLI::App* command :
       app.get_subcommands([](const CLI::App* each) { return !each->get_group().empty(); }))
    commands.push_back(command->get_name());
  const std::string list = fmt::format("a command: {}", joined(commands, ", "));
  if (left.empty()) return "expected " + list;
  return fmt::format("expected {}; got '{}'{}", list, left.front(),
                     suggestion(left.front(), commands));
}

// The long names of a command's options, without dashes.
std::vector<std::string> options_of(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options())
    for (const std::string& name : option->get_lnames()) names.push_back(name);
  return names;
}

// Without -- before the program, the program's options are parsed as the launcher's.
std::string about_program(const CLI::App& command) {
  const CLI::Option* program = command.get_option_no_throw("program");
  if (!program || program->count() == 0) return {};
  return fmt::format("; put a program that has options after --: tandem {} ... -- {} ...",
                     command.get_name(), program->results().front());
}

// `tandem checkpoint` has commands of its own.
bool has_commands(const CLI::App& command) {
  return !command.get_subcommands([](const CLI::App*) { return true; }).empty();
}

// Whether the command line names no command, or none of the commands that its command has.
bool lacks_command(const CLI::App& app) {
  const auto commands = app.get_subcommands();
  return commands.empty() ||
         (has_commands(*commands.front()) && commands.front()->get_subcommands().empty());
}

// Names the first argument that `app` did not recognize, or the missing command, and suggests what
// may have been meant.
std::string describe_unexpected(const CLI::App& app) {
  const std::vector<std::string> left = app.remaining(true);
  const auto commands = app.get_subcommands();
  if (commands.empty()) return unknown_command(app, left);
  const CLI::App& outer = *commands.front();
  if (lacks_command(app)) return unknown_command(outer, left);
  const CLI::App& command = has_commands(outer) ? *outer.get_subcommands().front() : outer;
  // Reports an unknown option, not the value after it.
  const auto option = std::find_if(left.begin(), left.end(),
                                   [](const std::string& word) { return word.starts_with('-'); });
  if (option == left.end())
    return fmt::format("tandem {}: unrecognized argument '{}'", command.get_name(), left.front());
  const std::string name = option->substr(0, option->find('='));
  return fmt::format("tandem {}: unrecognized option '{}'{}{}", command.get_name(), name,
                     suggestion(name, options_of(command), "--"), about_program(command));
}

}  // namespace

Option& Option::required() {
  option_.required()->default_str("");
  return *this;
}

Option& Option::at_least(std::int64_t least) {
  option_.check(CLI::Validator(
      [least](const std::string& text) -> std::string {
        std::int64_t value = 0;
        const char* end = text.data() + text.size();
        const auto parsed = std::from_chars(text.data(), end, value);
        if (parsed.ec == std::errc() && parsed.ptr == end && value >= least) return "";
        return fmt::format("expected a whole number of at least {}, got '{}'", least, text);
      },
      "", "whole number"));
  return *this;
}

Option& Option::one_of(const std::vector<std::string>& values) {
  option_.check(CLI::IsMember(values));
  return *this;
}

Option& Option::comma_separated() {
  option_.delimiter(',');
  return *this;
}

Option& Option::one_per_use() {
  option_.take_all()->allow_extra_args(false);
  return *this;
}

Option& Option::hidden() {
  option_.group("");
  return *this;
}

std::string Command::name() const { return command_.get_name(); }

Command Command::command(const std::string& name, const std::string& help) {
  return Command(*command_.add_subcommand(name, help));
}

void Command::requires_command() { command_.require_subcommand(1); }

void Command::hidden() { command_.group(""); }

void Command::takes_last_value() {
  command_.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
}

template <class T>
Option Command::option(const std::string& names, T& value, const std::string& help) {
  CLI::Option* option = command_.add_option(names, value, help);
  if constexpr (std::is_arithmetic_v<T>)
    option->capture_default_str();
  else if constexpr (std::is_same_v<T, std::string>)
    if (!value.empty()) option->capture_default_str();
  return Option(*option);
}
template Option Command::option(const std::string&, std::string&, const std::string&);
template Option Command::option(const std::string&, int&, const std::string&);
template Option Command::option(const std::string&, std::int64_t&, const std::string&);
template Option Command::option(const std::string&, std::uint64_t&, const std::string&);
template Option Command::option(const std::string&, double&, const std::string&);
template Option Command::option(const std::string&, std::optional<std::string>&,
                                const std::string&);
template Option Command::option(const std::string&, std::optional<int>&, const std::string&);
template Option Command::option(const std::string&, std::optional<std::int64_t>&,
                                const std::string&);
template Option Command::option(const std::string&, std::optional<double>&, const std::string&);
template Option Command::option(const std::string&, std::vector<std::string>&, const std::string&);

Option Command::flag(const std::string& name, bool& value, const std::string& help) {
  return Option(*command_.add_flag(name, value, help));
}

void Command::set_action(const std::function<int()>& action) {
  command_.callback([action] {
    if (const int code = action()) throw CLI::RuntimeError(code);
  });
}

int report(const char* kind, std::string message) {
  std::replace(message.begin(), message.end(), '\n', ' ');
  std::cerr << "tandem: " << kind << ": " << message << '\n';
  return kFailure;
}

int run_program(int argc, char** argv, const std::function<void(Command)>& add_commands) {
  // A write past the file size limit then fails with an error instead of killing the process.
  std::signal(SIGXFSZ, SIG_IGN);
  // If the parent ignores it, so do its programs, and processes that they start leave no status.
  std::signal(SIGCHLD, SIG_DFL);

  CLI::App app("Train models on one or more devices");
  app.name("tandem");
  app.set_version_flag("--version", "tandem " TANDEM_VERSION);
  app.require_subcommand(1);
  add_commands(Command(app));
  try {
    app.parse(argc, argv);
  } catch (const CLI::RuntimeError& e) {
    return e.get_exit_code();  // the command has printed its message
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) return app.exit(e);  // --help, --version
    const bool unexpected = dynamic_cast<const CLI::ExtrasError*>(&e) || lacks_command(app);
    return report("InvalidArgumentError",
                  "[command line] " + (unexpected ? describe_unexpected(app) : e.what()));
  } catch (const tandem::Error& e) {
    return report(e.kind(), e.what());
  } catch (const std::bad_alloc&) {
    return report("ResourceExhaustedError", "[tandem] out of memory");
  } catch (const std::exception& e) {
    return report("InternalError", e.what());
  }
  return 0;
}

}  // namespace tandem::tools
