// Any string as a device name results in a name that prints and parses back to itself, or in a
// typed error.
#include <cstdint>
#include <string>

#include "core/status.h"
#include "device/device_name.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(bytes), size);
  try {
    const tandem::DeviceName name = tandem::DeviceName::parse(text);
    // An id without a type is kept, but not printed.
    if (name.type || !name.id)
      TANDEM_ASSERT(tandem::DeviceName::parse_full(name.to_string()) == name);
  } catch (const tandem::InvalidArgumentError&) {
  }
  return 0;
}
