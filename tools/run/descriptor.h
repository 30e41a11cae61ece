// Descriptors, and lines out of pipes.
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

// An open descriptor, closed with the object.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() { close(); }
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    if (this != &other) {
      close();
      number_ = std::exchange(other.number_, -1);
    }
    return *this;
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  int number() const { return number_; }
  bool is_open() const { return number_ >= 0; }
  void close() {
    if (number_ >= 0) ::close(std::exchange(number_, -1));
  }

 private:
  int number_ = -1;
};

struct Pipe {
  Descriptor read, write;
};
inline Pipe make_pipe() {
  std::array<int, 2> ends = {};
  if (pipe2(ends.data(), O_CLOEXEC) != 0)
    throw ResourceExhaustedError(std::string("[run] cannot make a pipe: ") + std::strerror(errno));
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

inline void make_nonblocking(const Descriptor& descriptor) {
  fcntl(descriptor.number(), F_SETFL, fcntl(descriptor.number(), F_GETFL) | O_NONBLOCK);
}

// The reading end of a pipe, not blocking, line by line.
class LineReader {
 public:
  LineReader() = default;
  explicit LineReader(Descriptor descriptor) : descriptor_(std::move(descriptor)) {
    make_nonblocking(descriptor_);
  }
  bool is_open() const { return descriptor_.is_open(); }
  int number() const { return descriptor_.number(); }

  // Calls `line(text)` for each line that has come, its end included, or a long one's part; at the
  // end of the stream also for what is left.
  template <class Line>
  void read(const Line& line) {
    std::array<char, 65536> bytes;
    // At most so much at a time: others are to be heard, too.
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
  // What is left, and no more.
  template <class Line>
  void finish(const Line& line) {
    if (!buffer_.empty()) line(std::string_view(buffer_));
    buffer_.clear();
    descriptor_.close();
  }

 private:
  static constexpr std::size_t kLongLine = std::size_t{1} << 16;
  Descriptor descriptor_;
  std::string buffer_;
};

}  // namespace tandem::tools
