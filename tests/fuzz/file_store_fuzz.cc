// Any bytes as the file of a store: what is whole of it, or a typed error; and what is set is
// there.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <string>

#include "comm/rendezvous/file_store.h"
#include "core/status.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  using namespace tandem;
  static const int file = memfd_create("store", 0);
  static const std::string path = "/proc/self/fd/" + std::to_string(file);
  TANDEM_ASSERT(ftruncate(file, 0) == 0);
  TANDEM_ASSERT(pwrite(file, bytes, size, 0) == static_cast<ssize_t>(size));
  try {
    FileStore store(path);
    store.set("key", "value");
    TANDEM_ASSERT(store.get("key", {}) == "value");
    TANDEM_ASSERT(store.remove("key"));
  } catch (const InvalidArgumentError&) {  // a file of another kind, which is left as it was
    TANDEM_ASSERT(lseek(file, 0, SEEK_END) == static_cast<off_t>(size));
  }
  return 0;
}
