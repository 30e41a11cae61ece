// A file that is replaced whole or not at all.
#pragma once

#include <cstddef>
#include <filesystem>

namespace tandem {

// Writes go to a new file beside `path`; commit() syncs it and renames it over `path`. Destroyed
// before, it removes what it wrote: the old file stays as it was. Not thread-safe.
//
// Errors name `path`: ResourceExhaustedError (disk, quota or file size used up), NotFoundError (no
// such directory), FailedPreconditionError (not allowed to write there), RuntimeError (others).
class AtomicFile {
 public:
  explicit AtomicFile(std::filesystem::path path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(const void* data, std::size_t bytes);
  // Overwrites bytes that were written before.
  void overwrite(std::size_t offset, const void* data, std::size_t bytes);
  void commit();

 private:
  [[noreturn]] void fail_errno(const char* what, int error) const;

  std::filesystem::path path_;
  std::filesystem::path temporary_;
  int descriptor_ = -1;
};

}  // namespace tandem
