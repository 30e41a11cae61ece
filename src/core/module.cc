#include "core/module.h"

#include <dlfcn.h>

#include <filesystem>

#include "core/status.h"

namespace tandem {
namespace {

// Of the library that this function is in.
std::filesystem::path folder_of_library() {
  Dl_info info;
  if (dladdr(reinterpret_cast<const void*>(&load_factory), &info) == 0 || !info.dli_fname)
    return {};
  return std::filesystem::path(info.dli_fname).parent_path();
}

std::filesystem::path path_of(const Module& module) { return folder_of_library() / module.file; }

}  // namespace

bool is_built(const Module& module) {
  std::error_code unreadable;
  return std::filesystem::exists(path_of(module), unreadable);
}

void* load_factory(const Module& module) {
  const std::filesystem::path path = path_of(module);
  if (!is_built(module))
    fail<UnavailableError>(
        "[{}] this build of Tandem has no {} backend ('{}' is not there): install the Debian "
        "package {} and build Tandem again",
        module.backend, module.backend, path.string(), module.library);
  // The loader counts: asking again is cheap.
  void* const handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle)
    fail<UnavailableError>("[{}] cannot load the {} backend, which needs the Debian package {}: {}",
                           module.backend, module.backend, module.runtime, dlerror());
  void* const factory = dlsym(handle, module.factory);
  if (!factory)
    fail<UnavailableError>("[{}] '{}' belongs to another version of Tandem: {}", module.backend,
                           path.string(), dlerror());
  return factory;
}

bool can_load(const Module& module) {
  try {
    load_factory(module);
    return true;
  } catch (const UnavailableError&) {
    return false;
  }
}

}  // namespace tandem
