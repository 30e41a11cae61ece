#include "group/connect.h"

#include <algorithm>
#include <array>
#include <sstream>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "comm/exchange_bytes.h"
#include "comm/gloo/gloo_backend.h"
#include "comm/hierarchical/hierarchical_communicator.h"
#include "comm/host_identity.h"
#include "comm/mpi/mpi_backend.h"
#include "comm/nccl/nccl_backend.h"
#include "comm/process/process_communicator.h"
#include "comm/rendezvous/consultation.h"
#include "comm/shm/shm_backend.h"
#include "comm/shm/shm_bytes.h"
#include "comm/signature.h"
#include "core/env.h"
#include "core/joined.h"
#include "core/log.h"
#include "core/status.h"
#include "device/native_gpu.h"

namespace tandem {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::array<std::string_view, 6> kBackends = {"auto", "shm",          "gloo",
                                                       "mpi",  "hierarchical", "nccl"};

// The properties of a rank, from which rank 0 chooses the backend.
struct RankProperties {
  std::string host;
  bool mpi = false;
  std::size_t shared_memory = 0;  // free bytes in /dev/shm
};

// Rank 0's answer. All but `place` is equal on all ranks.
struct BackendChoice {
  std::string backend;    // the backend that "auto" selects
  std::string network;    // the backend between hosts
  std::size_t place = 0;  // the local rank
};

// The number of groups per job (the world, duplicates, subgroups) for which "auto" requires room in
// /dev/shm.
constexpr std::size_t kGroupsInSharedMemory = 8;

// A key that is equal on all ranks and unique to this call: numbers this rank's calls for `what`.
std::string numbered(Job& job, const std::string& what) {
  const std::string counter = fmt::format("connect/{}/calls of {}", what, job.rank());
  return fmt::format("{} {}", what, job.store()->add(counter, 1) - 1);
}

std::unique_ptr<Backend> make_backend(const std::string& backend, Job& job,
                                      std::chrono::milliseconds limit) {
  if (backend == "mpi")
    return make_mpi_backend({.rank = job.rank(),
                             .size = job.size(),
                             .time_limit = limit,
                             .membership = job.membership()});
  const std::string name = numbered(job, "world");
  if (backend == "shm")
    return make_shm_backend({.store = job.store(),
                             .name = name,
                             .rank = job.rank(),
                             .size = job.size(),
                             .names = job.names(),
                             .time_limit = limit,
                             .membership = job.membership()});
  TANDEM_ASSERT(backend == "gloo");
  return make_gloo_backend({.store = job.store(),
                            .name = name,
                            .rank = job.rank(),
                            .size = job.size(),
                            .names = job.names(),
                            .interface = "",
                            .address = "",
                            .master = job.master(),
                            .time_limit = limit,
                            .membership = job.membership()});
}

std::string network_of(const std::vector<RankProperties>& properties) {
  const bool mpi = std::all_of(properties.begin(), properties.end(),
                               [](const RankProperties& rank) { return rank.mpi; });
  return mpi ? "mpi" : "gloo";
}

// The ranks of each host. Hosts are in the order of their first ranks.
std::vector<std::vector<int>> ranks_by_host(const std::vector<std::string>& host_of) {
  std::vector<std::vector<int>> hosts;
  std::unordered_map<std::string_view, std::size_t> index;
  for (std::size_t rank = 0; rank < host_of.size(); ++rank) {
    const auto [host, is_new] = index.emplace(host_of[rank], hosts.size());
    if (is_new) hosts.emplace_back();
    hosts[host->second].push_back(static_cast<int>(rank));
  }
  return hosts;
}

// The first host with several ranks whose /dev/shm is too small for their groups.
const std::vector<int>* short_of_memory(const std::vector<std::vector<int>>& hosts,
                                        const std::vector<RankProperties>& properties) {
  for (const std::vector<int>& ranks : hosts) {
    if (ranks.size() == 1 && properties.size() > 1) continue;
    const std::size_t wanted =
        kGroupsInSharedMemory * shm_group_bytes(static_cast<int>(ranks.size()));
    if (properties[static_cast<std::size_t>(ranks.front())].shared_memory < wanted) return &ranks;
  }
  return nullptr;
}

void warn_of_memory(const std::string& backend, const RankProperties& rank,
                    const std::vector<int>& ranks) {
  logging::warn(
      "[connect] the backend is {}, not shared memory: {} MiB are free in /dev/shm on the host of "
      "{}, and groups of {} ranks want {} MiB. Make it larger (docker run --shm-size=1g), or "
      "choose "
      "the backend yourself",
      backend, rank.shared_memory >> 20, list_ranks(ranks), ranks.size(),
      kGroupsInSharedMemory * shm_group_bytes(static_cast<int>(ranks.size())) >> 20);
}

RankProperties parse_properties(const std::string& text) {
  const std::size_t blank = text.find(' ');
  return {text.substr(blank + 1), text.front() == 'm', std::stoull(text.substr(1, blank - 1))};
}

// The answers to the ranks: backend, network, place. With `warns`, logs a warning if memory
// decides.
std::vector<std::string> choose_backends(const std::vector<std::string>& values, bool warns) {
  std::vector<RankProperties> properties;
  std::vector<std::string> host_of;
  for (const std::string& text : values) {
    properties.push_back(parse_properties(text));
    host_of.push_back(properties.back().host);
  }
  const auto hosts = ranks_by_host(host_of);
  const std::string network = network_of(properties);
  std::string choice = hosts.size() == 1 ? "shm" : "hierarchical";
  if (hosts.size() > 1 && hosts.size() == properties.size()) {
    choice = network;
  } else if (const std::vector<int>* ranks = short_of_memory(hosts, properties)) {
    choice = network;
    if (warns)
      warn_of_memory(network, properties[static_cast<std::size_t>(ranks->front())], *ranks);
  }
  std::vector<std::string> answers(properties.size());
  for (const std::vector<int>& ranks : hosts)
    for (std::size_t place = 0; place < ranks.size(); ++place)
      answers[static_cast<std::size_t>(ranks[place])] =
          fmt::format("{} {} {}", choice, network, place);
  return answers;
}

BackendChoice agree_on_backend(Job& job, std::chrono::milliseconds limit, bool warns = false) {
  const bool mpi = (env_string("OMPI_COMM_WORLD_SIZE") || env_string("PMI_SIZE")) && has_mpi();
  const std::string answer =
      consult({.store = *job.store(),
               .name = "connect/" + numbered(job, "seats"),
               .rank = job.rank(),
               .size = job.size(),
               .deadline = Clock::now() + limit,
               .describe_missing =
                   [&](const std::vector<int>& missing) {
                     return fmt::format("[connect] {} did not call connect() within {} ms",
                                        list_ranks(missing), limit.count());
                   }},
              fmt::format("{}{} {}", mpi ? "m" : "-", shm_free_bytes(), host_identity()),
              [&](const auto& values) { return choose_backends(values, warns); });
  BackendChoice choice;
  std::istringstream(answer) >> choice.backend >> choice.network >> choice.place;
  return choice;
}

std::unique_ptr<Communicator> connect_through(std::unique_ptr<Backend> backend, Job& job,
                                              Device& device, std::chrono::milliseconds limit) {
  return make_process_communicator(std::move(backend), device,
                                   {.time_limit = limit, .membership = job.membership()});
}

// Shared memory inside the hosts, a network between their leaders.
std::unique_ptr<Communicator> connect_hosts(Job& job, Device& device,
                                            std::chrono::milliseconds limit) {
  const std::string network = agree_on_backend(job, limit).network;
  auto all = connect_through(make_backend(network, job, limit), job, device, limit);
  const std::vector<std::string> host_of = exchange_bytes(*all, host_identity());
  const auto hosts = ranks_by_host(host_of);
  if (hosts.size() == host_of.size()) return all;
  std::vector<int> first, ranks;
  std::size_t mine = 0;
  for (std::size_t host = 0; host < hosts.size(); ++host) {
    first.push_back(hosts[host].front());
    ranks.insert(ranks.end(), hosts[host].begin(), hosts[host].end());
    if (host_of[static_cast<std::size_t>(hosts[host].front())] ==
        host_of[static_cast<std::size_t>(job.rank())])
      mine = host;
  }
  const std::vector<int>& here = hosts[mine];
  const auto place = std::find(here.begin(), here.end(), job.rank()) - here.begin();
  auto inner =
      connect_through(make_shm_backend({.store = job.store(),
                                        .name = numbered(job, fmt::format("host {}", mine)),
                                        .rank = static_cast<int>(place),
                                        .size = static_cast<int>(here.size()),
                                        .names = RankNames(here),
                                        .time_limit = limit,
                                        .membership = job.membership()}),
                      job, device, limit);
  auto outer = all->split(first);
  return make_hierarchical_communicator(std::move(inner), std::move(outer),
                                        {.time_limit = limit,
                                         .ranks = std::move(ranks),
                                         .names = RankNames(),
                                         .direct = std::move(all)});
}

// Local rank n uses GPU n, unless `device` is a GPU.
std::unique_ptr<Communicator> connect_gpus(Job& job, Device& device,
                                           std::chrono::milliseconds limit) {
  NcclOptions options{.store = job.store(),
                      .name = numbered(job, "world"),
                      .rank = job.rank(),
                      .size = job.size(),
                      .device = &device,
                      .gpu = 0,
                      .time_limit = limit,
                      .membership = job.membership()};
  if (const NativeGpu* gpu = as_native(device))
    options.gpu = gpu->ordinal();
  else
    options.gpu = static_cast<int>(agree_on_backend(job, limit).place);
  return connect_through(make_nccl_backend(std::move(options)), job, device, limit);
}

}  // namespace

void check_backend(const std::string& name) {
  if (std::find(kBackends.begin(), kBackends.end(), name) == kBackends.end())
    fail<InvalidArgumentError>("[connect] Invalid backend: '{}'; expected one of {}", name,
                               joined(kBackends, ", "));
}

std::string choose_backend(Job& job, const ConnectOptions& options) {
  check_backend(options.backend);
  if (options.backend != "auto") return options.backend;
  return agree_on_backend(job, options.time_limit, true).backend;
}

std::unique_ptr<Communicator> connect(Job& job, Device& device, const ConnectOptions& options) {
  const std::string backend = choose_backend(job, options);
  if (backend == "nccl") return connect_gpus(job, device, options.time_limit);
  if (backend == "hierarchical") return connect_hosts(job, device, options.time_limit);
  return connect_through(make_backend(backend, job, options.time_limit), job, device,
                         options.time_limit);
}

}  // namespace tandem
