#include "core/available_cores.h"

#include <omp.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cmath>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>

#include "core/env.h"
#include "core/status.h"

namespace tandem {
namespace {

std::atomic<int> core_limit = std::numeric_limits<int>::max();

std::string text_of(const std::filesystem::path& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::optional<double> number_in(std::string_view text) {
  double value = 0;
  if (std::from_chars(text.data(), text.data() + text.size(), value).ec != std::errc())
    return std::nullopt;
  return value;
}

// The quota of one group: "QUOTA PERIOD" in one file, or two files. Without a quota, "max" or -1.
std::optional<double> quota_in(const std::filesystem::path& folder) {
  std::string quota = text_of(folder / "cpu.max"), period;
  if (const std::size_t space = quota.find(' '); space != std::string::npos) {
    period = quota.substr(space + 1);
  } else {
    quota = text_of(folder / "cpu.cfs_quota_us");
    period = text_of(folder / "cpu.cfs_period_us");
  }
  const std::optional<double> allowed = number_in(quota), of = number_in(period);
  if (!allowed || !of || *allowed <= 0 || *of <= 0) return std::nullopt;
  return *allowed / *of;
}

// The OpenMP library ignores values that it does not understand, and takes all cores.
void expect_thread_counts(const char* variable, bool list) {
  const std::optional<std::string> text = env_string(variable);
  if (!text) return;
  const char *at = text->data(), *const end = at + text->size();
  const auto skip_blanks = [&] {
    while (at != end && (*at == ' ' || *at == '\t')) ++at;
  };
  for (;;) {
    int value = 0;
    skip_blanks();
    const auto [stop, error] = std::from_chars(at, end, value);
    at = stop;
    skip_blanks();
    if (error != std::errc() || value < 1 || (at != end && (*at != ',' || !list)))
      fail<InvalidArgumentError>(
          "[Environment] {}: expected {}, got '{}'", variable,
          list ? "positive integers, separated by commas" : "a positive integer", *text);
    if (at++ == end) return;
  }
}

// This process's share of the host's cores, if mpirun has started several ranks there. Ranks that
// are bound to cores have fewer in their mask.
int share_of_host() {
  const auto share = [](const char* ranks, const char* rank) -> std::optional<int> {
    const auto size = env_int(ranks, 1, std::numeric_limits<int>::max());
    if (!size) return std::nullopt;
    return share_of_cores(static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)),
                          static_cast<int>(env_int(rank, 0, *size - 1).value_or(0)),
                          static_cast<int>(*size));
  };
  const auto open_mpi = share("OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK");
  return open_mpi ? *open_mpi
                  : share("MPI_LOCALNRANKS", "MPI_LOCALRANKID")
                        .value_or(std::numeric_limits<int>::max());
}

int cores_of_process() {
  expect_thread_counts("OMP_NUM_THREADS", true);
  expect_thread_counts("OMP_THREAD_LIMIT", false);
  int cores = std::min(omp_get_max_threads(), omp_get_thread_limit());
  if (!env_string("OMP_NUM_THREADS")) cores = std::min(cores, share_of_host());
  if (const auto quota = cores_of_quota(text_of("/proc/self/cgroup"), "/sys/fs/cgroup"))
    cores = std::min(cores, *quota);
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0) cores = std::min(cores, CPU_COUNT(&set));
  return std::max(1, cores);
}

}  // namespace

int available_cores() {
  static const int cores = cores_of_process();
  return std::min(cores, core_limit.load(std::memory_order_relaxed));
}

int share_of_cores(int cores, int sharer, int sharers) {
  const std::int64_t all = cores;
  return std::max(1, static_cast<int>(all * (sharer + 1) / sharers - all * sharer / sharers));
}

void limit_available_cores(int cores) { core_limit = std::max(1, cores); }

std::optional<int> cores_of_quota(std::string_view groups, const std::filesystem::path& mounted) {
  std::optional<double> least;
  while (!groups.empty()) {
    // "NUMBER:CONTROLLERS:PATH"; no controllers in version 2.
    const std::string_view line = groups.substr(0, groups.find('\n'));
    groups.remove_prefix(std::min(groups.size(), line.size() + 1));
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string_view::npos) continue;
    const std::string controllers(line.substr(first + 1, second - first - 1));
    const bool of_cpu = ("," + controllers + ",").find(",cpu,") != std::string::npos;
    if (!of_cpu && !controllers.empty()) continue;
    const std::filesystem::path root = mounted / (of_cpu ? "cpu" : "");
    // Where only a part of the tree is mounted, as in containers, its root is the process's group.
    std::filesystem::path group = std::filesystem::path(line.substr(second + 1)).relative_path();
    for (;; group = group.parent_path()) {
      if (const auto quota = quota_in(root / group))
        least = std::min(least.value_or(*quota), *quota);
      if (group.empty()) break;
    }
  }
  if (!least) return std::nullopt;
  return std::max(1, static_cast<int>(std::ceil(std::min(*least, 1e6))));
}

}  // namespace tandem
