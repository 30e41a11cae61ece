// A PJRT plug-in that fails as a test tells it.
#pragma once

#include <dlfcn.h>

#include <filesystem>
#include <stdexcept>
#include <string>

#include "support/built.h"
#include "support/fake_pjrt_script.h"
#include "support/files.h"

namespace tandem::testing {

// A plug-in of its own for each test: a copy of the library. Stays loaded.
class FakePlugin {
 public:
  static bool is_there() {
    return built_module("pjrt") && std::filesystem::exists(fake_pjrt_plugin());
  }
  FakePlugin() : path((folder_ / "plugin.so").string()) {
    std::filesystem::copy_file(fake_pjrt_plugin(), path);
    void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library) throw std::runtime_error(dlerror());
    script_ = reinterpret_cast<FakePjrt* (*)()>(dlsym(library, "fake_pjrt"))();
  }
  FakePjrt& operator*() const { return *script_; }
  FakePjrt* operator->() const { return script_; }

 private:
  TemporaryDirectory folder_;
  FakePjrt* script_;

 public:
  const std::string path;
};

}  // namespace tandem::testing
