#include "run/job_directory.h"

#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <system_error>

#include "core/file_error.h"

namespace tandem::tools {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPrefix = "tandem-job-";
constexpr const char* kKept = "kept";  // a file that marks a directory that is not stale

fs::path default_parent() {
  const char* set = std::getenv("TMPDIR");
  return set != nullptr && *set != '\0' ? set : "/tmp";
}

// The lock of a directory that exists; not open if another process holds it.
FileDescriptor lock_of(const fs::path& directory) {
  FileDescriptor descriptor(
      open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat found = {};
  if (!descriptor.is_open() || flock(descriptor.number(), LOCK_EX | LOCK_NB) != 0 ||
      fstat(descriptor.number(), &found) != 0 || found.st_nlink == 0 || found.st_uid != geteuid())
    descriptor.close();
  return descriptor;
}

void remove_stale(const fs::path& parent) {
  std::error_code error;
  for (fs::directory_iterator each(parent, error), end; !error && each != end;
       each.increment(error)) {
    if (!each->path().filename().string().starts_with(kPrefix)) continue;
    const FileDescriptor lock = lock_of(each->path());
    std::error_code ignored;
    if (lock.is_open() && !fs::exists(each->path() / kKept, ignored))
      fs::remove_all(each->path(), ignored);
  }
}

}  // namespace

JobDirectory::JobDirectory(fs::path parent) {
  if (parent.empty()) parent = default_parent();
  remove_stale(parent);
  while (!lock_.is_open()) {  // another launcher may take it for a stale one before it is locked
    path_ = (parent / fmt::format("{}XXXXXX", kPrefix)).string();
    if (mkdtemp(path_.data()) == nullptr)
      throw_file_error("[run] cannot make a directory of the job in '" + parent.string() + "'",
                       errno);
    lock_ = lock_of(path_);
  }
}

bool JobDirectory::keep() {
  std::error_code error;
  for (fs::recursive_directory_iterator each(path_, error), end; !error && each != end;
       each.increment(error))
    if (each->is_regular_file(error) && !error) kept_ = true;
  if (kept_) std::ofstream(fs::path(path_) / kKept);
  return kept_;
}

JobDirectory::~JobDirectory() {
  if (kept_) return;
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

}  // namespace tandem::tools
