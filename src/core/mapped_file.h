// A file in memory, of which what is read is loaded.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <string_view>

#include "core/status.h"

namespace tandem {

// A file that is replaced meanwhile, as AtomicFile does, keeps its bytes. Reading what another
// program cuts off meanwhile ends this one (SIGBUS).
class MappedFile {
 public:
  // `of`: what the file holds, for errors that begin with "[op] path:".
  MappedFile(std::string_view op, const std::string& path, std::string_view of) {
    const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0)
      fail<NotFoundError>("[{}] {}: cannot be opened: {}", op, path, std::strerror(errno));
    struct stat status {};
    const bool regular = fstat(file, &status) == 0 && S_ISREG(status.st_mode);
    if (regular && status.st_size > 0) {
      size_ = static_cast<std::size_t>(status.st_size);
      data_ = mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file, 0);
    }
    close(file);
    if (!regular) fail<InvalidArgumentError>("[{}] {}: expected a file of {}", op, path, of);
    if (size_ > 0 && data_ == MAP_FAILED)
      fail<ResourceExhaustedError>("[{}] {}: cannot be mapped into memory: {}", op, path,
                                   std::strerror(errno));
  }
  ~MappedFile() {
    if (size_ > 0) munmap(data_, size_);
  }
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::size_t size() const { return size_; }
  const std::byte* data() const { return static_cast<const std::byte*>(data_); }

 private:
  std::size_t size_ = 0;
  void* data_ = MAP_FAILED;
};

}  // namespace tandem
