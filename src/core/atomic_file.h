// Replaces a file completely or not at all.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

namespace tandem {

// Writes go to a temporary file beside `path`; commit() syncs it and renames it to `path`. If the
// object is destroyed before commit(), the temporary file is removed and the old file is unchanged.
// Temporary files of killed processes are removed by the next AtomicFile for `path`. Devices and
// pipes are written in place. Not thread-safe.
//
// Errors name `path` and have the types of core/file_error.h.
class AtomicFile {
 public:
  // `what` is the operation in messages: "save".
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

// Removes temporary files for `path` that ended processes of this host have left. A running writer
// holds a lock on its file, in whichever container of the host it runs. Files of other hosts that
// share the directory are not touched.
void remove_stale_files(const std::filesystem::path& path);

}  // namespace tandem
