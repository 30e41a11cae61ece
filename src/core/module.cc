#include "core/module.h"

#include <dlfcn.h>

#include <filesystem>
#include <string>
#include <string_view>

#include "core/status.h"

namespace tandem {
namespace {

// The directory of the library that contains this function.
std::filesystem::path folder_of_library() {
  Dl_info info;
  if (dladdr(reinterpret_cast<const void*>(&can_load), &info) == 0 || !info.dli_fname) return {};
  return std::filesystem::path(info.dli_fname).parent_path();
}

// Whether the build was configured with the target.
bool configured(const std::string& target) {
  constexpr std::string_view kTargets = "," TANDEM_CONFIGURED_MODULES ",";
  return kTargets.find("," + target + ",") != std::string_view::npos;
}

// The build directory of a library in `folder`; empty if it is installed.
std::filesystem::path build_folder(std::filesystem::path folder) {
  std::error_code unreadable;
  for (; !folder.empty(); folder = folder.parent_path()) {
    if (std::filesystem::exists(folder / "CMakeCache.txt", unreadable)) return folder;
    if (folder == folder.root_path()) break;
  }
  return {};
}

[[noreturn]] void fail_not_there(const Module& module, const std::filesystem::path& path) {
  const std::string target = fmt::format("tandem_{}", module.backend);
  if (!configured(target))
    fail<UnavailableError>(
        "[{}] this build of Tandem has no {} backend ('{}' is not there): install the Debian "
        "package {} and build Tandem again",
        module.backend, module.backend, path.string(), module.library);
  if (const std::filesystem::path folder = build_folder(path.parent_path()); !folder.empty())
    fail<UnavailableError>("[{}] the {} backend is not built yet: cmake --build {} --target {}",
                           module.backend, module.backend, folder.string(), target);
  fail<UnavailableError>(
      "[{}] this build of Tandem has a {} backend, but '{}' is not there: build the target {} and "
      "install Tandem again",
      module.backend, module.backend, path.string(), target);
}

// Counts references, so that repeated calls are cheap.
void* open_module(const Module& module, const std::filesystem::path& path) {
  std::error_code unreadable;
  if (!std::filesystem::exists(path, unreadable)) fail_not_there(module, path);
  void* const handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle)
    fail<UnavailableError>("[{}] cannot load the {} backend, which needs the Debian package {}: {}",
                           module.backend, module.backend, module.runtime, dlerror());
  return handle;
}

}  // namespace

void* find_in(const Module& module, const char* function) {
  const std::filesystem::path path = folder_of_library() / module.file;
  void* const found = dlsym(open_module(module, path), function);
  if (!found)
    fail<UnavailableError>("[{}] '{}' belongs to another version of Tandem: {}", module.backend,
                           path.string(), dlerror());
  return found;
}

bool can_load(const Module& module) {
  try {
    open_module(module, folder_of_library() / module.file);
    return true;
  } catch (const UnavailableError&) {
    return false;
  }
}

}  // namespace tandem
