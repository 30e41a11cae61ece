// A small file system of a test, which can be filled.
#pragma once

#include <sys/mount.h>

#include <filesystem>
#include <string>

#include "support/files.h"
#include "support/mount_namespace.h"

namespace tandem::testing {

// A tmpfs in a new mount namespace of this process: invisible to other processes, and removed with
// this one. mounted() is false if the system does not permit this process to mount.
class SmallDisk {
 public:
  explicit SmallDisk(std::size_t bytes) {
    if (!enter_mount_namespace()) return;
    const std::string options = "size=" + std::to_string(bytes);
    mounted_ = mount("tmpfs", directory_.path().c_str(), "tmpfs", 0, options.c_str()) == 0;
  }
  ~SmallDisk() {
    if (mounted_) umount(directory_.path().c_str());
  }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;

  bool mounted() const { return mounted_; }
  const std::filesystem::path& path() const { return directory_.path(); }
  std::filesystem::path operator/(const std::string& name) const { return directory_ / name; }
  std::size_t count_files() const { return directory_.count_files(); }

  void make_read_only() const {
    mount("tmpfs", directory_.path().c_str(), "tmpfs", MS_REMOUNT | MS_RDONLY, nullptr);
  }
  // Leaves about `bytes` bytes free.
  void fill_up_to(std::size_t bytes) const {
    const std::size_t free = std::filesystem::space(directory_.path()).available;
    if (free > bytes) write_file(directory_ / "ballast", std::string(free - bytes, 'x'));
  }

 private:
  TemporaryDirectory directory_;
  bool mounted_ = false;
};

}  // namespace tandem::testing
