/// @file
/// How evenly the devices of a process are used: memory, and time.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "tandem/profiler.h"

namespace tandem::parallel {

/// How much a device is used in comparison with the others.
struct DeviceBalance {
  std::string device{};           ///< full name of the device
  std::int64_t peak_bytes = 0;    ///< the most memory that was in use
  double share_of_largest = 0.0;  ///< peak_bytes relative to the largest one, from 0 to 1
  /// Fraction of the time in which the device computed or copied, from 0 to 1. Unset if it is not
  /// known: emulated GPUs measure it; for other devices it needs a profile.
  std::optional<double> busy_share{};
  /// Whether the device had nothing to do: it was busy for less than 1 % of the time or, if that is
  /// not known, used no memory.
  bool idle = false;
};

/// @{
/// The balance of all GPUs or, if there are none, of the logical CPUs, in the order of the devices.
/// Waits for the devices. Peaks and busy shares count from the start of the process, or from
/// config::reset_memory_stats(). With the result of profiler::stop(), busy shares are those of the
/// profile.
std::vector<DeviceBalance> memory_balance();
std::vector<DeviceBalance> memory_balance(const profiler::Summary& profile);
/// @}

/// @{
/// Writes memory_balance() with one line per device: its name, its peak in MiB, that relative to
/// the largest peak, its busy share ("-" if unknown), and "idle" for an idle device.
void print_memory_balance(std::ostream& out);
void print_memory_balance(std::ostream& out, const profiler::Summary& profile);
/// @}

}  // namespace tandem::parallel
