#include "comm/host_identity.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace tandem {

std::string host_identity() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  std::error_code none;
  const auto network = std::filesystem::read_symlink("/proc/self/ns/net", none);
  char name[256] = "";
  gethostname(name, sizeof(name) - 1);
  return std::string(name) + " " + boot + " " + network.string();
}

}  // namespace tandem
