#include "unexpected.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string_view>
#include <vector>

#include "core/joined.h"
#include "core/nearest.h"

namespace tandem::tools {
namespace {

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

}  // namespace

bool lacks_command(const CLI::App& app) {
  const auto commands = app.get_subcommands();
  return commands.empty() ||
         (has_commands(*commands.front()) && commands.front()->get_subcommands().empty());
}

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

}  // namespace tandem::tools
