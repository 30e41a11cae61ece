// A file that is replaced whole or not at all.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

namespace tandem {

// Writes go to a new file beside `path`; commit() syncs it and renames it over `path`. Destroyed
// before, it removes what it wrote: the old file stays as it was. What a process that was killed
// has left beside `path` is removed by the next AtomicFile for it. A device or a pipe is written to
// as it is. Not thread-safe.
//
// Errors name `path`, and are of the types of core/file_error.h.
class AtomicFile {
 public:
  // `what` goes in messages: "save".
  explicit AtomicFile(std::filesystem::path path, std::string what = "save");
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(const void* data, std::size_t bytes);
  // Overwrites bytes that were written before.
  void overwrite(std::size_t offset, const void* data, std::size_t bytes);
  void commit();

 private:
  void create();
  [[noreturn]] void fail_errno(const char* action, int error) const;

  std::filesystem::path path_;
  std::string what_;
  bool in_place_ = false;  // a device or a pipe
  std::filesystem::path temporary_;
  int descriptor_ = -1;
};

// Removes what processes of this host that are no more have left of writing `path`. A living
// writer holds a lock on its file, wherever on the host it runs; files of other hosts, which may
// share the directory, stay.
void remove_abandoned(const std::filesystem::path& path);

}  // namespace tandem
