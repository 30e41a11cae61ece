// The log of a test and of the processes that it starts.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <string>

#include "support/files.h"
#include "support/waiting.h"

namespace tandem::testing {

// stderr is a file while this exists, also in processes that are forked meanwhile.
class LogFile {
 public:
  LogFile() : stderr_(dup(2)) {
    const int file = open(path().c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (stderr_ < 0 || file < 0) throw std::runtime_error("cannot make a log");
    dup2(file, 2);
    close(file);
  }
  ~LogFile() {
    dup2(stderr_, 2);
    close(stderr_);
  }
  LogFile(const LogFile&) = delete;
  LogFile& operator=(const LogFile&) = delete;

  std::string text() const { return read_file(path()); }
  // Waits until a process has logged it. False after kPatience.
  bool wait_for(const std::string& text) const {
    return eventually([&] { return this->text().find(text) != std::string::npos; });
  }

 private:
  std::filesystem::path path() const { return folder_ / "log"; }

  const TemporaryDirectory folder_;
  const int stderr_;
};

}  // namespace tandem::testing
