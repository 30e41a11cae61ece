// Command lines. The library that parses them has headers that are slow to compile: only options.cc
// includes them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <type_traits>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace tandem::tools {

class Option {
 public:
  explicit Option(CLI::Option& option) : option_(option) {}

  Option& required();
  // Restricts the value to 64-bit integers of at least `least`. CLI11 itself parses "-1" as an
  // unsigned number, and clamps numbers that are too large.
  Option& at_least(std::int64_t least);
  Option& one_of(const std::vector<std::string>& values);
  Option& comma_separated();
  Option& one_per_use();  // does not consume the words after its value
  Option& hidden();       // in --help

 private:
  CLI::Option& option_;
};

// A command of a program, or the program itself.
class Command {
 public:
  explicit Command(CLI::App& command) : command_(command) {}

  std::string name() const;
  Command command(const std::string& name, const std::string& help);
  void requires_command();
  void hidden();            // in --help
  void takes_last_value();  // of options that are repeated and added after this call
  // Sets `value`, which must outlive parsing. Its present value is shown as the default, if it is
  // not empty. T: std::string, int, std::int64_t, std::uint64_t, double, std::optional of these, or
  // std::vector<std::string>. A name without dashes is that of a positional argument.
  template <class T>
  Option option(const std::string& names, T& value, const std::string& help);
  Option flag(const std::string& name, bool& value, const std::string& help);
  // Runs `action` if the command is given. The exit code is its result, if it has one, else 0.
  template <class F>
  void runs(F action) {
    set_action([action] {
      if constexpr (!std::is_void_v<std::invoke_result_t<F>>) return action();
      action();
      return 0;
    });
  }

 private:
  void set_action(const std::function<int()>& action);

  CLI::App& command_;
};

// Parses the command line of `tandem` and runs its command. Reports errors. Returns the exit code.
int run_program(int argc, char** argv, const std::function<void(Command)>& add_commands);
// Prints an error as a single line, which logs and scripts can parse. Returns the exit code.
int report(const char* kind, std::string message);

}  // namespace tandem::tools
