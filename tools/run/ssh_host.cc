#include "run/ssh_host.h"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <chrono>
#include <csignal>
#include <sstream>
#include <thread>

#include "core/json.h"

namespace tandem::tools {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kFarewellLimit = std::chrono::seconds(5);

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

// Quotes `text` as one word of a shell command.
std::string quoted(const std::string& text) {
  std::string result = "'";
  for (const char c : text)
    if (c == '\'') {
      result += "'\\''";
    } else {
      result += c;
    }
  return result + "'";
}

[[noreturn]] void become(std::vector<std::string>& words, int input, int output, pid_t parent) {
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  setpgid(0, 0);  // a ^C at the terminal goes to the launcher only, which forwards it
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  std::signal(SIGPIPE, SIG_DFL);
  dup2(input, STDIN_FILENO);
  dup2(output, STDOUT_FILENO);
  execvp(argv.front(), argv.data());
  _exit(127);
}

Json describe(const RankSpec& spec) {
  Json environment = Json::Object();
  for (const auto& [name, value] : spec.environment) environment[name] = value;
  Json all = {{"rank", spec.rank}, {"local_rank", spec.local_rank}, {"local_size", spec.local_size},
              {"bind", spec.bind}, {"program", spec.program},       {"environment", environment}};
  if (spec.snapshots) all["snapshots"] = *spec.snapshots;
  return all;
}

}  // namespace

SshHost::SshHost(std::string name, const std::string& ssh, const std::string& remote_command,
                 const Signals& signals, std::chrono::milliseconds time_limit)
    : name_(std::move(name)), signals_(signals), time_limit_(time_limit) {
  std::vector<std::string> words = words_of(ssh);
  words.push_back(name_);
  words.push_back("exec " + quoted(remote_command) + " agent");
  Pipe input = make_pipe(), output = make_pipe();
  const pid_t parent = getpid();
  process_ = fork();
  if (process_ < 0)
    throw ResourceExhaustedError(std::string("[run] cannot fork: ") + std::strerror(errno));
  if (process_ == 0) become(words, input.read.number(), output.write.number(), parent);
  input_ = std::move(input.write);
  make_nonblocking(input_);
  output_ = LineReader(std::move(output.read));
}

SshHost::~SshHost() {
  if (!reported_) send(Json{{"do", "end"}}.dump());
  input_.close();  // then the agent kills its ranks and exits, and so does ssh
  const Clock::time_point end = Clock::now() + kFarewellLimit;
  while (waitpid(process_, nullptr, WNOHANG) == 0) {
    if (Clock::now() >= end) kill(process_, SIGKILL);
    output_.read([](std::string_view) {});
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

std::vector<int> SshHost::reserve_ports(std::size_t count) {
  wait_for_answer(kAgentHello);
  send(Json{{"do", "ports"}, {"count", count}}.dump());
  std::istringstream answer(wait_for_answer("P").substr(1));
  std::vector<int> ports;
  for (int port = 0; answer >> port;) ports.push_back(port);
  if (ports.size() != count)
    throw UnavailableError(
        fmt::format("[run] {}: expected {} ports, got {}", name_, count, ports.size()));
  return ports;
}

void SshHost::send_start(const std::vector<RankSpec>& ranks) {
  Json::Array list;
  for (const RankSpec& spec : ranks) list.push_back(describe(spec));
  std::array<char, 4096> directory = {};
  const bool known = getcwd(directory.data(), directory.size()) != nullptr;
  send(
      Json{{"do", "start"}, {"ranks", list}, {"directory", known ? directory.data() : "/"}}.dump());
}

// handle() takes the answer, because events may precede it.
void SshHost::restart(const RankSpec& rank) { send_start({rank}); }

void SshHost::start(const std::vector<RankSpec>& ranks) {
  send_start(ranks);
  const std::string answer = wait_for_answer("SF");
  if (answer.front() == 'F')
    throw NotFoundError(fmt::format("[run] {}: {}", name_, answer.substr(2)));
}

void SshHost::send_signal(int number) {
  if (!reported_) send(Json{{"do", "signal"}, {"number", number}}.dump());
}

std::string SshHost::keep_snapshots() {
  if (reported_) return "";  // the agent keeps them when the connection is lost
  send(Json{{"do", "keep"}}.dump());
  try {
    return wait_for_answer("K").substr(2);
  } catch (const UnavailableError&) {
    return "";
  } catch (const StartInterrupted&) {
    return "";
  }
}

void SshHost::add_polled(std::vector<pollfd>& polled) const {
  if (output_.is_open()) polled.push_back({output_.number(), POLLIN, 0});
  if (!unsent_.empty()) polled.push_back({input_.number(), POLLOUT, 0});
}

template <class Handle>
void SshHost::read_lines(const Handle& handle) {
  output_.read([&](std::string_view bytes) {
    line_ += bytes;
    if (line_.back() != '\n') return;
    line_.pop_back();
    if (!line_.empty()) handle(line_);
    line_.clear();
  });
}

void SshHost::progress(RankEvents& events) {
  flush();
  for (const std::string& line : std::exchange(queued_, {})) handle(line, events);
  read_lines([&](const std::string& line) { handle(line, events); });
  if (output_.is_open() || reported_) return;
  reported_ = true;
  events.lost(fmt::format("the connection to {} was closed", name_));
}

void SshHost::send(const std::string& line) {
  unsent_ += line + '\n';
  flush();
}

void SshHost::flush() {
  std::size_t sent = 0;
  while (sent < unsent_.size()) {
    const ssize_t count = write(input_.number(), unsent_.data() + sent, unsent_.size() - sent);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno != EAGAIN)
      sent = unsent_.size();  // the agent is gone; the next read reports it
    if (count < 0) break;
    sent += static_cast<std::size_t>(count);
  }
  unsent_.erase(0, sent);
}

std::string SshHost::wait_for_answer(const std::string& letters) {
  const Clock::time_point end = Clock::now() + time_limit_;
  const bool greeting = letters == kAgentHello;
  std::string found;
  std::vector<pollfd> polled;
  while (output_.is_open() && Clock::now() < end) {
    polled = {{signals_.number(), POLLIN, 0}};
    add_polled(polled);
    poll(polled.data(), polled.size(), 100);
    for (int number = signals_.next(); number != 0; number = signals_.next())
      if (ends_job(number)) throw StartInterrupted{number};
    flush();
    read_lines([&](const std::string& line) {
      if (!found.empty()) {
        queued_.push_back(line);
      } else if (greeting ? line == letters : letters.find(line.front()) != std::string::npos) {
        found = line;
      }
    });
    if (!found.empty()) return found;
  }
  throw UnavailableError(fmt::format(
      "[run] {}: `tandem agent` did not answer{}", name_,
      output_.is_open() ? fmt::format(" within {} s (--start-timeout)", time_limit_.count() / 1e3)
                        : ": the connection was closed"));
}

void SshHost::handle(const std::string& line, RankEvents& events) {
  if (line.starts_with("F ")) return events.lost(line.substr(2));  // of restart()
  std::istringstream in(line);
  char kind = 0;
  int rank = -1, status = 0;
  pid_t process = 0;
  if (!(in >> kind >> rank)) return;
  switch (kind) {
    case 'O':
    case 'o':
    case 'E':
    case 'e': {
      std::string text = line.substr(std::min(line.size(), line.find(' ', 2) + 1));
      if (kind == 'O' || kind == 'E') text += '\n';
      events.wrote(rank,
                   kind == 'O' || kind == 'o' ? StandardStream::kStdout : StandardStream::kStderr,
                   text);
      return;
    }
    case 'X':
      if (in >> process >> status) events.ended(rank, process, status);
      return;
    case 'C': events.closed(rank); return;
    default: return;
  }
}

}  // namespace tandem::tools
