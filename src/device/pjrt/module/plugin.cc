#include "device/pjrt/module/plugin.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>

#include "core/status.h"
#include "device/pjrt/module/check.h"

namespace tandem::pjrt {
namespace {

// The last version that changed the layout of existing structs.
constexpr int kOldestMinor = 57;

using GetApi = const PJRT_Api* (*)();

GetApi find_entry(const std::string& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0)
    fail<NotFoundError>("[PJRT] there is no plug-in '{}'", path);
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library)
    fail<InvalidArgumentError>("[PJRT] '{}' is not a library that can be loaded: {}", path,
                               dlerror());
  void* entry = dlsym(library, "GetPjrtApi");
  if (!entry) {
    dlclose(library);
    fail<InvalidArgumentError>("[PJRT] '{}' is not a PJRT plug-in: it has no function GetPjrtApi",
                               path);
  }
  return reinterpret_cast<GetApi>(entry);
}

const PJRT_Api& checked_api(GetApi entry, const std::string& path) {
  const PJRT_Api* api = entry();
  if (!api) fail<InternalError>("[PJRT] GetPjrtApi of '{}' returned nothing", path);
  const PJRT_Api_Version& version = api->pjrt_api_version;
  const bool readable = api->struct_size >= offsetof(PJRT_Api, pjrt_api_version) + sizeof(version);
  if (!readable || version.major_version != PJRT_API_MAJOR || version.minor_version < kOldestMinor)
    fail<FailedPreconditionError>(
        "[PJRT] '{}' has version {}.{} of the PJRT C API; expected {}.{} or a later {}.x", path,
        readable ? version.major_version : -1, readable ? version.minor_version : -1,
        PJRT_API_MAJOR, kOldestMinor, PJRT_API_MAJOR);
  if (!TANDEM_PJRT_HAS(*api, PJRT_LoadedExecutable_Execute) ||
      !TANDEM_PJRT_HAS(*api, PJRT_Buffer_ToHostBuffer) ||
      !TANDEM_PJRT_HAS(*api, PJRT_Client_BufferFromHostBuffer))
    fail<FailedPreconditionError>("[PJRT] '{}' lacks functions of version {}.{} of the PJRT C API",
                                  path, PJRT_API_MAJOR, kOldestMinor);
  return *api;
}

std::array<std::int64_t, 3> numbers_of(const PJRT_NamedValue& value) {
  std::array<std::int64_t, 3> numbers{};
  if (value.type == PJRT_NamedValue_kInt64List)
    std::copy_n(value.int64_array_value, std::min<std::size_t>(value.value_size, 3),
                numbers.begin());
  return numbers;
}

void read_attributes(const PJRT_Api& api, PluginInfo& info) {
  auto args = TANDEM_PJRT_ARGS(PJRT_Plugin_Attributes);
  check(api, api.PJRT_Plugin_Attributes(&args), "reading the attributes of the plug-in");
  for (std::size_t i = 0; i < args.num_attributes; ++i) {
    const PJRT_NamedValue& value = args.attributes[i];
    const std::string_view name(value.name, value.name_size);
    if (name == "stablehlo_current_version") info.stablehlo_current = numbers_of(value);
    if (name == "stablehlo_minimum_version") info.stablehlo_minimum = numbers_of(value);
  }
}

std::unique_ptr<Plugin> load(const std::string& path) {
  auto plugin = std::make_unique<Plugin>();
  plugin->api = &checked_api(find_entry(path), path);
  plugin->info.path = path;
  plugin->info.api_major = plugin->api->pjrt_api_version.major_version;
  plugin->info.api_minor = plugin->api->pjrt_api_version.minor_version;
  auto args = TANDEM_PJRT_ARGS(PJRT_Plugin_Initialize);
  check(*plugin->api, plugin->api->PJRT_Plugin_Initialize(&args),
        fmt::format("initialising '{}'", path));
  read_attributes(*plugin->api, plugin->info);
  return plugin;
}

}  // namespace

const Plugin& load_plugin(const std::string& path) {
  static std::mutex mutex;
  static auto* const loaded = new std::map<std::string, std::unique_ptr<Plugin>>;
  const std::lock_guard lock(mutex);
  std::unique_ptr<Plugin>& plugin = (*loaded)[path];
  if (!plugin) plugin = load(path);
  return *plugin;
}

}  // namespace tandem::pjrt
