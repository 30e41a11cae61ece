// Any string as TPU_CONFIG or as addresses of a TPU results in a node or in addresses, or in an
// InvalidArgumentError.
#include <cstdint>
#include <string>

#include "core/status.h"
#include "distribute/tpu_environment.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(bytes), size);
  try {
    const auto node = tandem::distribute::parse_tpu_config(text);
    TANDEM_ASSERT(!node || !node->name.empty());
  } catch (const tandem::InvalidArgumentError&) {
  }
  try {
    // Addresses without the scheme are addresses, too.
    for (const std::string& address : tandem::distribute::parse_tpu_endpoints(text))
      TANDEM_ASSERT(tandem::distribute::parse_tpu_endpoints(address).front() == address);
  } catch (const tandem::InvalidArgumentError&) {
  }
  return 0;
}
