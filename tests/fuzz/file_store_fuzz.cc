// Any bytes as a store's file: its complete records can be read, or a typed error is thrown. New
// values can be stored.
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "comm/rendezvous/file_store.h"
#include "core/status.h"

namespace {

// A file that ends with the process.
struct StoreFile {
  std::string path = (std::filesystem::temp_directory_path() / "store_XXXXXX").string();
  int descriptor = mkstemp(path.data());
  ~StoreFile() { unlink(path.c_str()); }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  using namespace tandem;
  static const StoreFile store_file;
  const int file = store_file.descriptor;
  TANDEM_ASSERT(ftruncate(file, 0) == 0);
  TANDEM_ASSERT(pwrite(file, bytes, size, 0) == static_cast<ssize_t>(size));
  try {
    FileStore store(store_file.path);
    store.set("key", "value");
    TANDEM_ASSERT(store.get("key", {}) == "value");
    store.remove("key");
  } catch (const InvalidArgumentError&) {  // another kind of file, which is not changed
    TANDEM_ASSERT(lseek(file, 0, SEEK_END) == static_cast<off_t>(size));
  }
  return 0;
}
