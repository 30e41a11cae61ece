// `tandem compile`: compiles a training step for devices that this machine need not have.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "commands.h"
#include "core/json.h"
#include "files.h"
#include "programs.h"
#include "tandem/config.h"
#include "training_step.h"
#include "workload.h"

namespace tandem::tools {
namespace {

struct CompileOptions {
  Workload workload;
  std::string target, plugin, output;
  std::int64_t time_limit = 600;  // seconds
  bool as_json = false;
  bool here = false;  // in this process
};

// "v5e:2x2" of "tpu:v5e:2x2".
std::string topology_of(const CompileOptions& options) {
  constexpr std::string_view kPrefix = "tpu:";
  if (!options.target.starts_with(kPrefix) || options.target.size() == kPrefix.size())
    throw InvalidArgumentError(fmt::format(
        "[compile] expected --target tpu:TOPOLOGY, such as tpu:v5e:2x2, got '{}'", options.target));
  return options.target.substr(kPrefix.size());
}

std::string plugin_of(const CompileOptions& options) {
  const char* libtpu = std::getenv("TPU_LIBRARY_PATH");
  const std::string path = options.plugin.empty() && libtpu ? libtpu : options.plugin;
  if (!path.empty() && !std::filesystem::exists(path))
    throw NotFoundError(fmt::format("[compile] there is no plug-in '{}'", path));
  if (!path.empty()) return path;
  throw NotFoundError(
      "[compile] compiling for TPUs needs libtpu, which is not part of Tandem: install it (pip "
      "install libtpu), and give the path of its libtpu.so by --plugin or TPU_LIBRARY_PATH");
}

// --- in the child process ---

Explanation compile_step(const CompileOptions& options) {
  // libtpu would ask the metadata server of a cloud machine where it is.
  setenv("TPU_SKIP_MDS_QUERY", "1", 1);
  config::load_pjrt_topology(plugin_of(options), topology_of(options));
  Workload workload = options.workload;
  workload.placement.strategy = "tpu";
  return explain_step(workload, "compile");
}

Json as_json(const CompileOptions& options, const Explanation& explanation) {
  Json report = {{"model", options.workload.model},
                 {"target", options.target},
                 {"batch", explanation.batch},
                 {"replicas", explanation.num_replicas},
                 {"programs", Json::Array()}};
  for (const auto& program : explanation.programs)
    report["programs"].push_back({{"name", program.name},
                                  {"replicas", program.devices.size()},
                                  {"argument_bytes", program.arguments},
                                  {"output_bytes", program.outputs},
                                  {"aliased_bytes", program.aliased},
                                  {"temporary_bytes", program.temporaries},
                                  {"code_bytes", program.code},
                                  {"total_bytes", program.total()},
                                  {"flops", program.flops}});
  return report;
}

int compile_here(const CompileOptions& options) {
  const Explanation explanation = compile_step(options);
  if (!options.output.empty()) {
    std::ofstream file(options.output);
    for (const auto& program : explanation.programs) file << program.stablehlo;
    file.close();
    if (!file) throw UnavailableError(fmt::format("[compile] cannot write '{}'", options.output));
  }
  if (options.as_json) {
    std::cout << as_json(options, explanation).dump({.indent = 2}) << '\n';
    return 0;
  }
  const auto mebibytes = [](std::int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
  std::cout << fmt::format("{} compiled for {}: {} replicas, global batch {}\n",
                           options.workload.model, options.target, explanation.num_replicas,
                           explanation.batch);
  for (const auto& program : explanation.programs)
    std::cout << fmt::format(
        "{}: {:.1f} MiB per replica (arguments {:.1f}, outputs {:.1f}, of these in place {:.1f}, "
        "temporaries {:.1f}, code {:.1f}), {:.3g} GFLOP per step\n",
        program.name, mebibytes(program.total()), mebibytes(program.arguments),
        mebibytes(program.outputs), mebibytes(program.aliased), mebibytes(program.temporaries),
        mebibytes(program.code), program.flops * 1e-9);
  return 0;
}

// --- in the parent process: a compiler may end its process ---

struct FileCloser {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using Captured = std::unique_ptr<std::FILE, FileCloser>;

Captured capture() {
  Captured file(std::tmpfile());
  if (!file) throw UnavailableError("[compile] cannot create a temporary file");
  return file;
}

std::string text_of(const Captured& file) {
  std::string text;
  std::rewind(file.get());
  char part[4096];
  for (std::size_t count; (count = std::fread(part, 1, sizeof part, file.get())) > 0;)
    text.append(part, count);
  return text;
}

std::string last_line(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text.substr(text.rfind('\n') + 1);
}

// This command line again, to be run in the child. REQUIRES: /proc.
std::vector<std::string> own_arguments() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> arguments;
  for (std::string argument; std::getline(file, argument, '\0');) arguments.push_back(argument);
  arguments.emplace_back("--in-this-process");
  return arguments;
}

pid_t start(const Captured& output, const Captured& errors) {
  const std::vector<std::string> arguments = own_arguments();
  std::vector<char*> pointers;
  for (const std::string& argument : arguments)
    pointers.push_back(const_cast<char*>(argument.c_str()));
  pointers.push_back(nullptr);
  const pid_t child = fork();
  if (child < 0) throw UnavailableError("[compile] cannot start a process for the compiler");
  if (child > 0) return child;
  dup2(fileno(output.get()), STDOUT_FILENO);
  dup2(fileno(errors.get()), STDERR_FILENO);
  execv("/proc/self/exe", pointers.data());
  _exit(127);
}

int wait_for(pid_t child, std::int64_t time_limit) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::seconds(time_limit);
  int status = 0;
  while (waitpid(child, &status, WNOHANG) == 0) {
    if (Clock::now() > end) {
      kill(child, SIGKILL);
      waitpid(child, &status, 0);
      throw DeadlineExceededError(
          fmt::format("[compile] the compiler was stopped after {} s (--time-limit)", time_limit));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return status;
}

int compile_in_child(const CompileOptions& options) {
  static_cast<void>(topology_of(options));  // the cheap errors first
  static_cast<void>(plugin_of(options));
  const Captured output = capture(), errors = capture();
  const int status = wait_for(start(output, errors), options.time_limit);
  if (WIFSIGNALED(status))
    throw InternalError(
        fmt::format("[compile] the compiler ended its process by signal {} ({}): {}",
                    WTERMSIG(status), strsignal(WTERMSIG(status)), last_line(text_of(errors))));
  std::cout << text_of(output) << std::flush;
  if (WEXITSTATUS(status) != 0) std::cerr << last_line(text_of(errors)) << '\n';
  return WEXITSTATUS(status);
}

}  // namespace

void add_compile_command(Command program) {
  const auto options = std::make_shared<CompileOptions>();
  Command command = program.command(kCompile.command, kCompile.help);
  add_workload_options(command, options->workload,
                       "Dataset: synthetic, mnist or cifar10 (no files are read)");
  command
      .option("--target", options->target,
              "Topology to compile for, with one replica per core: tpu:v5e:2x2")
      .required();
  command.option("--plugin", options->plugin,
                 "PJRT plug-in that compiles (default: TPU_LIBRARY_PATH)");
  command.option("--output", options->output, "File for the StableHLO text of the step");
  command.option("--time-limit", options->time_limit, "Seconds after which the compiler is stopped")
      .at_least(1);
  command.flag("--json", options->as_json, "Print JSON instead of text");
  command.flag("--in-this-process", options->here, "").hidden();
  command.runs(
      [options] { return options->here ? compile_here(*options) : compile_in_child(*options); });
}

}  // namespace tandem::tools
