#include "comm/nccl/nccl_clique.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <mutex>
#include <set>

#include "core/module.h"
#include "core/status.h"

namespace tandem {

std::string why_no_nccl(std::span<DeviceImpl* const> devices) {
  std::set<int> gpus;
  for (DeviceImpl* device : devices) {
    const NativeGpu* gpu = as_native(*device);
    if (!gpu) return fmt::format("{} is not an NVIDIA GPU", device->full_name());
    if (!gpus.insert(gpu->ordinal()).second)
      return fmt::format("{} shares its GPU with another replica", device->full_name());
  }
  if (devices.size() < 2) return "there is only one replica";
  if (const char* blocking = std::getenv("CUDA_LAUNCH_BLOCKING"); blocking && *blocking == '1')
    return "CUDA_LAUNCH_BLOCKING=1 makes one GPU wait for the others before their part is launched";
  if (!can_load(kNcclModule)) return "this build has no NCCL, or this machine has no libnccl";
  return {};
}

std::shared_ptr<NcclClique> nccl_clique(const std::vector<DeviceImpl*>& devices,
                                        std::chrono::milliseconds time_limit) {
  // A cache, because connecting is slow and every traced function requests its list of GPUs.
  static std::mutex mutex;
  static auto* const all = new std::map<std::vector<DeviceImpl*>, std::weak_ptr<NcclClique>>;
  const std::lock_guard lock(mutex);
  std::weak_ptr<NcclClique>& known = (*all)[devices];
  std::shared_ptr<NcclClique> clique = known.lock();
  if (clique && !clique->failed()) return clique;
  NcclCliqueOptions options{.gpus = {}, .time_limit = time_limit};
  for (DeviceImpl* device : devices) options.gpus.push_back(as_native(*device));
  const auto make = load<NcclClique*(NcclCliqueOptions*)>(kNcclModule, "tandem_make_nccl_clique");
  clique.reset(make(&options));
  known = clique;
  return clique;
}

}  // namespace tandem
