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
#include "comm/signature.h"
#include "core/env.h"
#include "core/log.h"
#include "core/status.h"
#include "device/native_gpu.h"

namespace tandem {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::array<std::string_view, 6> kBackends = {"auto", "shm",          "gloo",
                                                       "mpi",  "hierarchical", "nccl"};

// What a rank tells of itself, for rank 0 to choose.
struct Seat {
  std::string host;
  bool mpi = false;
  std::size_t shared_memory = 0;  // bytes that are free in /dev/shm
};

// What rank 0 makes of it. All but `place` is the same on all ranks.
struct Seating {
  std::string choice;     // what "auto" is
  std::string network;    // the backend between hosts
  std::size_t place = 0;  // of the rank among those on its host
};

// Groups of a job (the world, duplicates of it, groups of some ranks) for which "auto" wants room
// in /dev/shm.
constexpr std::size_t kGroupsInSharedMemory = 8;

// The same for all ranks, and for no other call: how often this rank has called for `what`.
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

std::string network_of(const std::vector<Seat>& seats) {
  const bool mpi =
      std::all_of(seats.begin(), seats.end(), [](const Seat& seat) { return seat.mpi; });
  return mpi ? "mpi" : "gloo";
}

// The ranks of each host; hosts in the order of their first ranks.
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

// The first host with several ranks that has no room for their groups in shared memory.
const std::vector<int>* short_of_memory(const std::vector<std::vector<int>>& hosts,
                                        const std::vector<Seat>& seats) {
  for (const std::vector<int>& ranks : hosts) {
    if (ranks.size() == 1 && seats.size() > 1) continue;
    const std::size_t wanted =
        kGroupsInSharedMemory * shm_group_bytes(static_cast<int>(ranks.size()));
    if (seats[static_cast<std::size_t>(ranks.front())].shared_memory < wanted) return &ranks;
  }
  return nullptr;
}

void warn_of_memory(const std::string& backend, const Seat& seat, const std::vector<int>& ranks) {
  logging::warn(
      "[connect] the backend is {}, not shared memory: {} MiB are free in /dev/shm on the host of "
      "{}, and groups of {} ranks want {} MiB. Make it larger (docker run --shm-size=1g), or "
      "choose "
      "the backend yourself",
      backend, seat.shared_memory >> 20, list_ranks(ranks), ranks.size(),
      kGroupsInSharedMemory * shm_group_bytes(static_cast<int>(ranks.size())) >> 20);
}

Seat parse_seat(const std::string& text) {
  const std::size_t blank = text.find(' ');
  return {text.substr(blank + 1), text.front() == 'm', std::stoull(text.substr(1, blank - 1))};
}

// The answers to the ranks: choice, network, place. Warns where memory decides and `warns`.
std::vector<std::string> judge_seats(const std::vector<std::string>& texts, bool warns) {
  std::vector<Seat> seats;
  std::vector<std::string> host_of;
  for (const std::string& text : texts) {
    seats.push_back(parse_seat(text));
    host_of.push_back(seats.back().host);
  }
  const auto hosts = ranks_by_host(host_of);
  const std::string network = network_of(seats);
  std::string choice = hosts.size() == 1 ? "shm" : "hierarchical";
  if (hosts.size() > 1 && hosts.size() == seats.size()) {
    choice = network;
  } else if (const std::vector<int>* ranks = short_of_memory(hosts, seats)) {
    choice = network;
    if (warns) warn_of_memory(network, seats[static_cast<std::size_t>(ranks->front())], *ranks);
  }
  std::vector<std::string> answers(seats.size());
  for (const std::vector<int>& ranks : hosts)
    for (std::size_t place = 0; place < ranks.size(); ++place)
      answers[static_cast<std::size_t>(ranks[place])] =
          fmt::format("{} {} {}", choice, network, place);
  return answers;
}

Seating find_seating(Job& job, std::chrono::milliseconds limit, bool warns = false) {
  const bool mpi = (env_string("OMPI_COMM_WORLD_SIZE") || env_string("PMI_SIZE")) && has_mpi();
  const std::string answer = consult(
      {.store = *job.store(),
       .name = "connect/" + numbered(job, "seats"),
       .rank = job.rank(),
       .size = job.size(),
       .deadline = Clock::now() + limit,
       .describe_missing =
           [&](const std::vector<int>& missing) {
             return fmt::format("[connect] {} did not come to choose a backend within {} ms",
                                list_ranks(missing), limit.count());
           }},
      fmt::format("{}{} {}", mpi ? "m" : "-", shm_free_bytes(), host_identity()),
      [&](const auto& texts) { return judge_seats(texts, warns); });
  Seating seating;
  std::istringstream(answer) >> seating.choice >> seating.network >> seating.place;
  return seating;
}

std::unique_ptr<Communicator> connect_through(std::unique_ptr<Backend> backend, Job& job,
                                              Device& device, std::chrono::milliseconds limit) {
  return make_process_communicator(std::move(backend), device,
                                   {.time_limit = limit, .membership = job.membership()});
}

// Shared memory inside the hosts, a network between their first ranks.
std::unique_ptr<Communicator> connect_hosts(Job& job, Device& device,
                                            std::chrono::milliseconds limit) {
  const std::string network = find_seating(job, limit).network;
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

// The n-th rank of a host has its n-th GPU, unless `device` is one.
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
    options.gpu = static_cast<int>(find_seating(job, limit).place);
  return connect_through(make_nccl_backend(std::move(options)), job, device, limit);
}

}  // namespace

void check_backend(const std::string& name) {
  if (std::find(kBackends.begin(), kBackends.end(), name) == kBackends.end())
    fail<InvalidArgumentError>("[connect] Invalid backend: '{}'; expected one of {}", name,
                               fmt::join(kBackends, ", "));
}

std::string choose_backend(Job& job, const ConnectOptions& options) {
  check_backend(options.backend);
  if (options.backend != "auto") return options.backend;
  return find_seating(job, options.time_limit, true).choice;
}

std::unique_ptr<Communicator> connect(Job& job, Device& device, const ConnectOptions& options) {
  const std::string backend = choose_backend(job, options);
  if (backend == "nccl") return connect_gpus(job, device, options.time_limit);
  if (backend == "hierarchical") return connect_hosts(job, device, options.time_limit);
  return connect_through(make_backend(backend, job, options.time_limit), job, device,
                         options.time_limit);
}

}  // namespace tandem
