#include "tandem/memory_balance.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <ostream>

#include "device/busy_share.h"
#include "device/device_manager.h"
#include "tandem/config.h"

namespace tandem::parallel {
namespace {

constexpr double kIdle = 0.01;

using BusyShare = std::function<std::optional<double>(DeviceImpl&)>;

std::vector<DeviceBalance> balance(const BusyShare& busy) {
  DeviceManager& manager = DeviceManager::get();
  auto devices = manager.devices(DeviceType::kGpu, "memory_balance");
  if (devices.empty()) devices = manager.devices(DeviceType::kCpu, "memory_balance");
  std::vector<DeviceBalance> rows;
  std::int64_t largest = 1;
  for (DeviceImpl* device : devices) {
    const std::int64_t peak = config::get_memory_info(device->full_name()).peak;
    largest = std::max(largest, peak);
    rows.push_back(
        {.device = device->full_name(), .peak_bytes = peak, .busy_share = busy(*device)});
  }
  for (DeviceBalance& row : rows) {
    row.share_of_largest = static_cast<double>(row.peak_bytes) / static_cast<double>(largest);
    row.idle = row.busy_share ? *row.busy_share < kIdle : row.peak_bytes == 0;
  }
  return rows;
}

void print(std::ostream& out, const std::vector<DeviceBalance>& rows) {
  for (const DeviceBalance& row : rows) {
    const std::string busy =
        row.busy_share ? fmt::format("{:.0f} %", 100.0 * *row.busy_share) : "-";
    out << fmt::format("{}  peak {:.1f} MiB  {:.0f} % of the largest  busy {}{}\n", row.device,
                       static_cast<double>(row.peak_bytes) / (1 << 20),
                       100.0 * row.share_of_largest, busy, row.idle ? "  idle" : "");
  }
}

}  // namespace

std::vector<DeviceBalance> memory_balance() {
  return balance([](DeviceImpl& device) { return busy_share(device); });
}

std::vector<DeviceBalance> memory_balance(const profiler::Summary& profile) {
  return balance([&](DeviceImpl& device) -> std::optional<double> {
    double seconds = 0.0;
    for (const profiler::OperationTotal& total : profile.totals)
      if (total.device == device.full_name()) seconds += total.self_seconds;
    // Copies may overlap with kernels.
    return profile.seconds > 0.0 ? std::min(1.0, seconds / profile.seconds) : 0.0;
  });
}

void print_memory_balance(std::ostream& out) { print(out, memory_balance()); }
void print_memory_balance(std::ostream& out, const profiler::Summary& profile) {
  print(out, memory_balance(profile));
}

}  // namespace tandem::parallel
