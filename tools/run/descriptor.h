// File descriptors, and reading lines from pipes.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "tandem/errors.h"

namespace tandem::tools {

// Owns an open file descriptor.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int number) : number_(number) {}
  ~FileDescriptor() { close(); }
  FileDescriptor(FileDescriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    if (this != &other) {
      close();
      number_ = std::exchange(other.number_, -1);
    }
    return *this;
  }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;

  int number() const { return number_; }
  bool is_open() const { return number_ >= 0; }
  void close() {
    if (number_ >= 0) ::close(std::exchange(number_, -1));
  }

 private:
  int number_ = -1;
};

struct Pipe {
  FileDescriptor read, write;
};
inline Pipe make_pipe() {
  std::array<int, 2> ends = {};
  if (pipe2(ends.data(), O_CLOEXEC) != 0)
    throw ResourceExhaustedError(std::string("[run] cannot make a pipe: ") + std::strerror(errno));
  return {FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

inline void make_nonblocking(const FileDescriptor& descriptor) {
  fcntl(descriptor.number(), F_SETFL, fcntl(descriptor.number(), F_GETFL) | O_NONBLOCK);
}

// Reads a pipe line by line, without blocking.
class LineReader {
 public:
  LineReader() = default;
  explicit LineReader(FileDescriptor descriptor) : descriptor_(std::move(descriptor)) {
    make_nonblocking(descriptor_);
  }
  bool is_open() const { return descriptor_.is_open(); }
  int number() const { return descriptor_.number(); }

  // Calls `line(text)` for each complete line, including its end, or part of a long one. At the
  // end of the stream also for an incomplete last line.
  template <class Line>
  void read(const Line& line) {
    std::array<char, 65536> bytes;
    // Limits one call, so that other pipes get their turn.
    for (int i = 0; i < 16 && is_open(); ++i) {
      const ssize_t count = ::read(number(), bytes.data(), bytes.size());
      if (count < 0 && errno == EINTR) continue;
      if (count < 0 && errno == EAGAIN) return;
      if (count <= 0) {
        finish(line);
        return;
      }
      buffer_.append(bytes.data(), static_cast<std::size_t>(count));
      std::string_view rest = buffer_;
      for (auto end = rest.find('\n'); end != std::string_view::npos; end = rest.find('\n')) {
        line(rest.substr(0, end + 1));
        rest.remove_prefix(end + 1);
      }
      if (rest.size() >= kLongLine) {
        line(rest);
        rest = {};
      }
      buffer_.erase(0, buffer_.size() - rest.size());
    }
  }
  // Reports an incomplete last line and closes the pipe.
  template <class Line>
  void finish(const Line& line) {
    if (!buffer_.empty()) line(std::string_view(buffer_));
    buffer_.clear();
    descriptor_.close();
  }

 private:
  static constexpr std::size_t kLongLine = std::size_t{1} << 16;
  FileDescriptor descriptor_;
  std::string buffer_;
};

}  // namespace tandem::tools
