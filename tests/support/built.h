// Modules and fakes that a build may have. The tests are the same programs with and without them.
#pragma once

#include <filesystem>
#include <string>

namespace tandem::testing {

// The library's module for an optional library: "cuda", "pjrt".
inline bool built_module(const std::string& name) {
  return std::filesystem::exists(TANDEM_LIBRARY_FOLDER "/libtandem_" + name + ".so");
}
inline std::string fake_pjrt_plugin() { return TANDEM_TESTS_FOLDER "/libfake_pjrt_plugin.so"; }
// CUDA's headers were there: tests/cuda.
inline bool built_fake_cuda() {
  return std::filesystem::exists(TANDEM_TESTS_FOLDER "/fake_cuda/libtandem_cuda.so");
}

}  // namespace tandem::testing
