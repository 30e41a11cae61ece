// File systems that a test mounts for itself.
#pragma once

#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include <string>

#include "support/files.h"

namespace tandem::testing {

// This process enters a mount namespace: what it mounts nobody else sees, and it goes with the
// process. False where the system lets this process mount nothing.
inline bool enter_mount_namespace() {
  const uid_t user = geteuid();
  const gid_t group = getegid();
  if (unshare(CLONE_NEWNS) != 0) {  // root may; others, as root of a namespace of users
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return false;
    write_file("/proc/self/setgroups", "deny");
    write_file("/proc/self/uid_map", "0 " + std::to_string(user) + " 1");
    write_file("/proc/self/gid_map", "0 " + std::to_string(group) + " 1");
  }
  // Or the mount would show where this namespace came from.
  return mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0;
}

}  // namespace tandem::testing
