#include "comm/shm/shm_bytes.h"

#include <sys/statvfs.h>

#include "comm/shm/layout.h"

namespace tandem {

std::size_t shm_group_bytes(int ranks) {
  const shm::SegmentLayout layout(static_cast<std::size_t>(ranks));
  return layout.state_bytes() + layout.ranks() * layout.ring_bytes();
}

std::size_t shm_free_bytes() {
  struct statvfs info {};
  if (statvfs("/dev/shm", &info) != 0) return 0;
  return static_cast<std::size_t>(info.f_bavail) * info.f_frsize;
}

}  // namespace tandem
