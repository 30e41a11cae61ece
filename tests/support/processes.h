// Processes that tests start as the ranks of a job.
#pragma once

#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <utility>

#include "tandem/errors.h"

namespace tandem::testing {

// A process that runs a function. REQUIRES: this process has no threads when it is started.
class ChildProcess {
 public:
  explicit ChildProcess(const std::function<std::string()>& body) {
    std::array<int, 2> ends = {};
    if (pipe(ends.data()) != 0) throw std::runtime_error("cannot make a pipe");
    const pid_t parent = getpid();
    process_ = fork();
    if (process_ == 0) {
      close(ends[0]);
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) _exit(1);
      const std::string text = outcome(body);
      if (write(ends[1], text.data(), text.size()) < 0) _exit(1);
      _exit(0);
    }
    close(ends[1]);
    result_ = ends[0];
  }
  ~ChildProcess() {
    if (process_ > 0) kill(SIGKILL);
    if (result_ >= 0) result();
  }
  ChildProcess(ChildProcess&& other) noexcept
      : process_(std::exchange(other.process_, -1)), result_(std::exchange(other.result_, -1)) {}
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t id() const { return process_; }
  void kill(int signal) const { ::kill(process_, signal); }

  // Waits for its end. Returns the function's result, or "KIND: message" of the tandem::Error that
  // it threw; empty if the process was killed before.
  std::string result() {
    std::string text;
    std::array<char, 4096> bytes;
    for (ssize_t count; (count = read(result_, bytes.data(), bytes.size())) != 0;)
      if (count > 0) text.append(bytes.data(), static_cast<std::size_t>(count));
    close(std::exchange(result_, -1));
    while (waitpid(process_, nullptr, 0) < 0 && errno == EINTR) {
    }
    process_ = -1;
    return text;
  }

 private:
  static std::string outcome(const std::function<std::string()>& body) {
    try {
      return body();
    } catch (const Error& error) {
      return std::string(error.kind()) + ": " + error.what();
    } catch (const std::exception& error) {
      return std::string("std::exception: ") + error.what();
    }
  }

  pid_t process_ = -1;
  int result_ = -1;
};

// A loopback port on which no process listens.
inline std::uint16_t free_port() {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (bind(socket, generic, size) != 0 || getsockname(socket, generic, &size) != 0)
    throw std::runtime_error("there is no free port");
  close(socket);
  return ntohs(address.sin_port);
}

}  // namespace tandem::testing
