// Private mounts of a test.
#pragma once

#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include <string>

#include "support/files.h"

namespace tandem::testing {

// Enters a new mount namespace: mounts are invisible to other processes and end with this one.
// False if the system does not permit this process to mount.
inline bool enter_mount_namespace() {
  const uid_t user = geteuid();
  const gid_t group = getegid();
  if (unshare(CLONE_NEWNS) != 0) {  // permitted for root; for others, as root of a user namespace
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return false;
    write_file("/proc/self/setgroups", "deny");
    write_file("/proc/self/uid_map", "0 " + std::to_string(user) + " 1");
    write_file("/proc/self/gid_map", "0 " + std::to_string(group) + " 1");
  }
  // Otherwise the mount would be visible in the original namespace.
  return mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0;
}

}  // namespace tandem::testing
