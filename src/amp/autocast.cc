#include "runtime/autocast.h"

#include "core/status.h"
#include "runtime/placement.h"
#include "tandem/amp.h"

namespace tandem::amp {
namespace {

DeviceType device_type_of(const std::string& text) {
  if (text.empty()) return place_constant("autocast").type();
  if (text == "cpu") return DeviceType::kCpu;
  if (text == "gpu" || text == "cuda") return DeviceType::kGpu;
  fail<InvalidArgumentError>("[autocast] expected device_type 'cpu' or 'gpu', got '{}'", text);
}

std::optional<AutocastSettings> settings_of(const AutocastOptions& options) {
  const DeviceType device = device_type_of(options.device_type);
  const DType dtype = options.dtype.value_or(device == DeviceType::kGpu ? float16 : bfloat16);
  if (dtype != float16 && dtype != bfloat16)
    fail<InvalidArgumentError>("[autocast] expected dtype float16 or bfloat16, got {}",
                               name_of(dtype));
  if (!options.enabled) return std::nullopt;
  return AutocastSettings{.dtype = dtype, .device = device, .caches = options.cache_enabled};
}

}  // namespace

struct autocast::Scope {
  explicit Scope(const AutocastOptions& options) : scope(settings_of(options)) {}
  AutocastScope scope;
};

autocast::autocast(const AutocastOptions& options) : scope_(std::make_unique<Scope>(options)) {}
autocast::~autocast() = default;

bool is_autocast_enabled() { return context.autocast.has_value(); }

std::optional<DType> autocast_dtype() {
  if (!context.autocast) return std::nullopt;
  return context.autocast->dtype;
}

}  // namespace tandem::amp
