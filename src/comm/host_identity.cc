#include "comm/host_identity.h"

#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>

namespace tandem {

std::string host_identity() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  std::error_code none;
  const auto network = std::filesystem::read_symlink("/proc/self/ns/net", none);
  return host_name() + " " + boot + " " + network.string();
}

std::string host_name() {
  std::array<char, 256> name = {};
  if (gethostname(name.data(), name.size() - 1) != 0) return "an unknown host";
  return name.data();
}

}  // namespace tandem
