// A temporary directory of a job on this machine.
#pragma once

#include <filesystem>
#include <string>

#include "run/descriptor.h"

namespace tandem::tools {

// Only this user has access. The destructor removes the directory, unless it is kept; the next
// JobDirectory in the same place removes those of launchers that were killed.
class JobDirectory {
 public:
  // `parent`: an existing directory; empty: $TMPDIR, or /tmp. Throws as core/file_error.h.
  explicit JobDirectory(std::filesystem::path parent);
  ~JobDirectory();
  JobDirectory(const JobDirectory&) = delete;
  JobDirectory& operator=(const JobDirectory&) = delete;

  // Keeps the directory if there are files in it, and returns whether there are.
  bool keep();
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  FileDescriptor lock_;  // on the directory
  bool kept_ = false;
};

}  // namespace tandem::tools
