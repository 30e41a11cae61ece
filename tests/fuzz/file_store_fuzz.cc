// Any bytes as the file of a store: what is whole of it, or a typed error; and what is set is there.
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

#include "comm/rendezvous/file_store.h"
#include "core/status.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  using namespace tandem;
  static const std::string path =
      std::filesystem::temp_directory_path() / ("file_store_fuzz." + std::to_string(getpid()));
  std::ofstream(path, std::ios::binary | std::ios::trunc)
      .write(reinterpret_cast<const char*>(bytes), static_cast<std::streamsize>(size));
  try {
    FileStore store(path);
    store.set("key", "value");
    TANDEM_ASSERT(store.get("key", {}) == "value");
    TANDEM_ASSERT(store.remove("key"));
  } catch (const InvalidArgumentError&) {  // a file of another kind, which is left as it was
    TANDEM_ASSERT(std::filesystem::file_size(path) == size);
  }
  return 0;
}
