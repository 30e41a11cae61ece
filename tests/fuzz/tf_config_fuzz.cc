// Any string as TF_CONFIG results in a task of its cluster, or in an InvalidArgumentError.
#include <cstdint>
#include <string>

#include "comm/rendezvous/tf_config.h"
#include "core/status.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  try {
    const auto config =
        tandem::parse_tf_config(std::string(reinterpret_cast<const char*>(bytes), size));
    if (config.cluster.empty()) {
      TANDEM_ASSERT(config.is_chief() && config.num_workers() == 0);
    } else if (config.trains()) {
      TANDEM_ASSERT(config.rank() < config.num_workers() && !config.first_address().empty());
      TANDEM_ASSERT(config.index < config.count(config.type));
    }
  } catch (const tandem::InvalidArgumentError&) {
  }
  return 0;
}
