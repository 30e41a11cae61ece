// The limits of the cores that this process uses.
#pragma once

#include <filesystem>
#include <optional>
#include <string_view>

namespace tandem {

// The cores that this process may use, at least 1. The limits are the affinity mask, the CPU quota
// of the cgroup, OMP_NUM_THREADS and OMP_THREAD_LIMIT; the smallest holds. Without OMP_NUM_THREADS,
// ranks that mpirun has started on one host share its cores. Throws InvalidArgumentError if one of
// the variables is invalid.
int available_cores();

// The cores of one of `sharers` that share `cores`, at least 1. Shares differ by at most one.
int share_of_cores(int cores, int sharer, int sharers);

// From now on this process uses at most `cores` cores, at least one.
void limit_available_cores(int cores);

// The cores that the CPU quotas of a process's control group and the groups around it allow,
// rounded up; none without a quota. `groups` is the content of /proc/self/cgroup, `mounted` the
// folder /sys/fs/cgroup, of version 1 or 2.
std::optional<int> cores_of_quota(std::string_view groups, const std::filesystem::path& mounted);

}  // namespace tandem
