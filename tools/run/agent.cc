// `tandem agent`: starts ranks on this machine for a `tandem run` on another.
#include <fmt/format.h>
#include <sys/signalfd.h>

#include <csignal>
#include <iostream>

#include "commands.h"
#include "core/json.h"
#include "programs.h"
#include "run/local_host.h"
#include "run/ssh_host.h"

namespace tandem::tools {
namespace {

void write_line(const std::string& text) {
  std::string_view rest = text;
  while (!rest.empty()) {
    const ssize_t count = write(STDOUT_FILENO, rest.data(), rest.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw UnavailableError("[agent] the launcher has closed the connection");
    rest.remove_prefix(static_cast<std::size_t>(count));
  }
}

class RankEventSender final : public RankEvents {
 public:
  void wrote(int rank, StandardStream output, std::string_view bytes) override {
    const bool whole = bytes.back() == '\n';
    const char* kind =
        output == StandardStream::kStdout ? (whole ? "O" : "o") : (whole ? "E" : "e");
    write_line(fmt::format("{} {} {}{}", kind, rank, bytes, whole ? "" : "\n"));
  }
  void ended(int rank, pid_t process, int status) override {
    write_line(fmt::format("X {} {} {}\n", rank, process, status));
  }
  void closed(int rank) override { write_line(fmt::format("C {}\n", rank)); }
  void lost(const std::string&) override {}
};

int integer_in(const Json& object, std::string_view name) {
  return static_cast<int>(object.at(name).integer());
}

RankSpec spec_of(const Json& item) {
  RankSpec spec = {.rank = integer_in(item, "rank"),
                   .local_rank = integer_in(item, "local_rank"),
                   .local_size = integer_in(item, "local_size"),
                   .bind = item.at("bind").boolean(),
                   .program = {},
                   .environment = {}};
  for (const Json& word : item.at("program").array()) spec.program.push_back(word.text());
  for (const auto& [name, value] : item.at("environment").object())
    spec.environment.emplace_back(name, value.text());
  if (const Json* snapshots = item.find("snapshots")) spec.snapshots = snapshots->text();
  if (spec.program.empty() || spec.local_size < 1)
    throw InvalidArgumentError("[agent] expected a rank with a program");
  return spec;
}

void start(LocalHost& host, const Json& request) {
  try {
    const std::string directory = request.at("directory").text();
    if (chdir(directory.c_str()) != 0)
      throw NotFoundError(
          fmt::format("[run] cannot enter '{}': {}", directory, std::strerror(errno)));
    std::vector<RankSpec> ranks;
    for (const Json& item : request.at("ranks").array()) ranks.push_back(spec_of(item));
    host.start(ranks);
    write_line("S\n");
  } catch (const Error& error) {
    write_line(fmt::format("F {}\n", error.what()));
  }
}

// Returns false at the end of the job.
bool obey(LocalHost& host, const std::string& line) {
  const Json request = Json::parse(line, "the request");
  const std::string what = request.at("do").text();
  if (what == "ports") {
    std::string answer = "P";
    for (const int port : host.reserve_ports(request.at("count").count()))
      answer += fmt::format(" {}", port);
    write_line(answer + "\n");
  } else if (what == "start") {
    start(host, request);
  } else if (what == "signal") {
    host.send_signal(integer_in(request, "number"));
  } else if (what == "keep") {
    write_line(fmt::format("K {}\n", host.keep_snapshots()));
  }
  return what != "end";
}

void serve() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGCHLD);
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  const FileDescriptor children(signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
  LineReader input{FileDescriptor(dup(STDIN_FILENO))};
  const ChildSubreaper subreaper;
  LocalHost host;
  RankEventSender sender;
  std::string line;
  write_line(std::string(kAgentHello) + "\n");
  std::vector<pollfd> polled;
  bool ended = false;
  while (input.is_open()) {
    polled = {{children.number(), POLLIN, 0}, {input.number(), POLLIN, 0}};
    host.add_polled(polled);
    poll(polled.data(), polled.size(), 500);
    signalfd_siginfo ignored = {};
    while (read(children.number(), &ignored, sizeof(ignored)) > 0) {
    }
    input.read([&](std::string_view bytes) {
      line += bytes;
      if (line.back() != '\n') return;
      ended = !obey(host, line);
      line.clear();
    });
    host.progress(sender);
  }
  if (!ended) host.keep_snapshots();  // the launcher is lost
}

}  // namespace

void add_agent_command(Command program) {
  Command command = program.command(kAgent.command, kAgent.help);
  command.hidden();  // internal
  command.runs([] {
    try {
      serve();
    } catch (const JsonError& error) {
      throw InvalidArgumentError(std::string("[agent] ") + error.what());
    }
  });
}

}  // namespace tandem::tools
