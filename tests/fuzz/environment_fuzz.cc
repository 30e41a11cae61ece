// Any string as the value of an environment variable results in a setting within its limits, or in
// a typed error that quotes the string.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "core/env.h"
#include "core/status.h"
#include "device/discovery.h"

namespace {

constexpr const char* kVariable = "TANDEM_EMULATED_GPUS";

template <class Call>
void value_or_error(const std::string& text, const Call& call) {
  try {
    call();
  } catch (const tandem::InvalidArgumentError& error) {
    TANDEM_ASSERT(std::string(error.what()).find('\'' + text + '\'') != std::string::npos);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  std::string text(reinterpret_cast<const char*>(bytes), size);
  text = text.c_str();  // a variable ends at the first zero byte
  setenv(kVariable, text.c_str(), 1);
  value_or_error(text, [&] {
    const auto request = tandem::emulated_gpus_from_environment();
    TANDEM_ASSERT(request.has_value() == !text.empty());
    if (!request) return;
    TANDEM_ASSERT(request->count >= 0 && request->count <= tandem::kMaxDeviceCount);
    TANDEM_ASSERT(request->memory_mib >= 1 && request->memory_mib <= tandem::kMaxEmulatedMib);
  });
  value_or_error(text, [] {
    const auto number = tandem::env_int(kVariable, -5, 100);
    TANDEM_ASSERT(!number || (*number >= -5 && *number <= 100));
  });
  value_or_error(text, [] { tandem::env_bool(kVariable); });
  for (const int count : {0, 3}) {
    const int visible = tandem::visible_count(text, count);
    TANDEM_ASSERT(visible >= 0 && visible <= count);
  }
  return 0;
}
