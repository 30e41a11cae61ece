#include "device/device.h"

#include "core/status.h"

namespace tandem {

void copy_between(Device& to, void* to_memory, Device& from, const void* from_memory,
                  std::size_t bytes) {
  if (bytes == 0) return;
  if (from.host_accessible()) {
    to.copy_from_host(to_memory, from_memory, bytes);
    return;
  }
  if (to.host_accessible()) {
    from.copy_to_host(to_memory, from_memory, bytes);
    from.stream().record().wait();
    return;
  }
  TANDEM_ASSERT(to.backend() == from.backend());
  if (&to == &from) {
    to.copy_from_peer(to_memory, from_memory, bytes);
    return;
  }
  to.stream().wait(from.stream().record());
  to.copy_from_peer(to_memory, from_memory, bytes);
  from.stream().wait(to.stream().record());
}

}  // namespace tandem
