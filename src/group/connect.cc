#include "group/connect.h"

#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <numeric>
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
#include "comm/rendezvous/file_store.h"
#include "comm/shm/shm_backend.h"
#include "comm/shm/shm_bytes.h"
#include "comm/signature.h"
#include "comm/transport/transport_backend.h"
#include "core/env.h"
#include "core/joined.h"
#include "core/log.h"
#include "core/status.h"
#include "device/cpu/cpu_device.h"
#include "device/native_gpu.h"

namespace tandem {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::array<std::string_view, 6> kBackends = {"auto", "shm",          "gloo",
                                                       "mpi",  "hierarchical", "nccl"};

// The properties of a rank, from which rank 0 chooses the backend. Sent as lines.
struct RankProperties {
  std::string backend;            // that it asks for
  std::size_t shared_memory = 0;  // free bytes in /dev/shm
  std::string host;
  std::string no_mpi;  // why it cannot use MPI; empty if it can
};

// Rank 0's answer, without which ranks throw an error. All but `place` is equal on all ranks.
struct BackendChoice {
  std::string backend;    // not "auto"
  std::string network;    // the backend between hosts
  std::size_t place = 0;  // the local rank
  std::size_t hosts = 1;
};

// The number of groups per job (the world, duplicates, subgroups) for which "auto" requires room in
// /dev/shm.
constexpr std::size_t kGroupsInSharedMemory = 8;

// A key that is equal on all ranks and unique to this call.
std::string numbered(Job& job, const std::string& what) {
  return fmt::format("{} {}", what, job.next_call(what));
}

GroupOptions world_of(Job& job, std::chrono::milliseconds limit) {
  return {.store = job.store(),
          .name = numbered(job, "world"),
          .rank = job.rank(),
          .size = job.size(),
          .time_limit = limit,
          .membership = job.membership()};
}

std::unique_ptr<Backend> make_backend(const std::string& backend, std::size_t hosts, Job& job,
                                      std::chrono::milliseconds limit) {
  if (backend == "mpi")
    return make_mpi_backend({.rank = job.rank(),
                             .size = job.size(),
                             .time_limit = limit,
                             .membership = job.membership()});
  if (backend == "shm") return make_shm_backend(world_of(job, limit));
  TANDEM_ASSERT(backend == "gloo");
  return make_gloo_backend(world_of(job, limit),
                           {.on_one_host = hosts == 1, .master = job.master()});
}

std::string network_of(const std::vector<RankProperties>& properties) {
  const bool mpi = std::all_of(properties.begin(), properties.end(),
                               [](const RankProperties& rank) { return rank.no_mpi.empty(); });
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
  std::istringstream lines(text);
  RankProperties rank;
  std::string bytes;
  std::getline(lines, rank.backend);
  std::getline(lines, bytes);
  std::getline(lines, rank.host);
  std::getline(lines, rank.no_mpi);
  rank.shared_memory = std::stoull(bytes);
  return rank;
}

// MPI would start, or may serve other processes, where no launcher has chosen it.
std::string reason_without_mpi(const Job& job, const std::string& backend) {
  if (backend == "mpi") return mpi_obstacle(job.rank(), job.size());
  const bool launched = env_string("OMPI_COMM_WORLD_SIZE") || env_string("PMI_SIZE");
  return launched && has_mpi() ? mpi_obstacle(job.rank(), job.size()) : "not under mpirun";
}

// The first characters of rank 0's answers.
constexpr char kChosen = '+', kDiffer = 'd', kNoMpi = 'm';

// The error that every rank throws, if ranks ask for different backends or one that they cannot
// use. Empty if there is none.
std::string find_disagreement(const std::vector<RankProperties>& properties) {
  const std::string& backend = properties.front().backend;
  for (std::size_t rank = 0; rank < properties.size(); ++rank) {
    const RankProperties& its = properties[rank];
    if (its.backend != backend)
      return fmt::format(
          "{}[connect] every rank must name the same backend: rank 0 named {}, rank "
          "{} {}",
          kDiffer, backend, rank, its.backend);
    if (backend == "mpi" && !its.no_mpi.empty())
      return fmt::format("{}[mpi] rank {}: {}", kNoMpi, rank, its.no_mpi);
  }
  return "";
}

// The answers to the ranks. With `warns`, logs a warning if memory decides. `network`: the only one
// that there is; default: of those that all ranks can use.
std::vector<std::string> choose_backends(const std::vector<std::string>& values, bool warns,
                                         const std::string& only_network = "") {
  std::vector<RankProperties> properties;
  std::vector<std::string> host_of;
  for (const std::string& text : values) {
    properties.push_back(parse_properties(text));
    host_of.push_back(properties.back().host);
  }
  if (const std::string error = find_disagreement(properties); !error.empty())
    return std::vector<std::string>(values.size(), error);
  const auto hosts = ranks_by_host(host_of);
  const std::string network = only_network.empty() ? network_of(properties) : only_network;
  std::string choice = properties.front().backend;
  if (choice == "auto") {
    choice = hosts.size() == 1 ? "shm" : "hierarchical";
    if (hosts.size() > 1 && hosts.size() == properties.size()) {
      choice = network;
    } else if (const std::vector<int>* ranks = short_of_memory(hosts, properties)) {
      choice = network;
      if (warns)
        warn_of_memory(network, properties[static_cast<std::size_t>(ranks->front())], *ranks);
    }
  }
  std::vector<std::string> answers(properties.size());
  for (const std::vector<int>& ranks : hosts)
    for (std::size_t place = 0; place < ranks.size(); ++place)
      answers[static_cast<std::size_t>(ranks[place])] =
          fmt::format("{}{} {} {} {}", kChosen, choice, network, place, hosts.size());
  return answers;
}

std::string properties_here(const std::string& backend, const std::string& no_mpi) {
  return fmt::format("{}\n{}\n{}\n{}", backend, shm_free_bytes(), host_identity(), no_mpi);
}

BackendChoice parse_choice(const std::string& answer) {
  if (answer.front() == kDiffer) throw InvalidArgumentError(answer.substr(1));
  if (answer.front() == kNoMpi) throw FailedPreconditionError(answer.substr(1));
  BackendChoice choice;
  std::istringstream(answer.substr(1)) >> choice.backend >> choice.network >> choice.place >>
      choice.hosts;
  return choice;
}

// All ranks meet here before any call that a rank could not stop waiting in, such as
// MPI_Init_thread.
BackendChoice agree_on_backend(Job& job, const ConnectOptions& options, bool warns = false) {
  check_backend(options.backend);
  const std::string answer =
      consult({.store = *job.store(),
               .name = "connect/" + numbered(job, "seats"),
               .rank = job.rank(),
               .size = job.size(),
               .limit = options.time_limit,
               .describe_missing =
                   [](const std::vector<int>& missing, std::chrono::milliseconds time) {
                     return fmt::format("[connect] {} did not call connect() within {} ms",
                                        list_ranks(missing), time.count());
                   }},
              properties_here(options.backend, reason_without_mpi(job, options.backend)),
              [&](const auto& values) { return choose_backends(values, warns); });
  return parse_choice(answer);
}

class NeedsAll {
 public:
  explicit NeedsAll(Membership* membership) : membership_(membership) {
    if (membership_) membership_->set_needs_all(true);
  }
  ~NeedsAll() {
    if (membership_) membership_->set_needs_all(false);
  }
  NeedsAll(const NeedsAll&) = delete;
  NeedsAll& operator=(const NeedsAll&) = delete;

 private:
  Membership* const membership_;
};

// Runs a function that waits for all other ranks. If it fails, tells them why, who would find only
// that this rank is gone.
template <class Function>
auto with_all_ranks(Job& job, const Function& function) {
  const auto& membership = job.membership();
  try {
    const NeedsAll needs(membership.get());
    return function();
  } catch (const Error& error) {
    if (membership && !membership->failed())
      membership->report(fmt::format("{}: {}", error.kind(), error.what()));
    throw;
  }
}

std::unique_ptr<Communicator> connect_through(std::unique_ptr<Backend> backend, Job& job,
                                              DeviceImpl& device, std::chrono::milliseconds limit) {
  return make_process_communicator(std::move(backend), device,
                                   {.time_limit = limit, .membership = job.membership()});
}

// A store for the ranks of a host, which have none: a file of the first rank, which removes it when
// it has left the group. A collective call of all ranks.
std::shared_ptr<Store> make_host_store(Communicator& all, const std::vector<int>& here) {
  std::string path;
  if (here.front() == all.rank()) {
    path = std::filesystem::temp_directory_path() / "tandem-group-XXXXXX";
    const int file = mkstemp(path.data());
    if (file >= 0) close(file);
    if (file < 0) path.clear();
  }
  const std::string theirs = exchange_bytes(all, path)[static_cast<std::size_t>(here.front())];
  if (theirs.empty())
    fail<UnavailableError>(
        "[connect] rank {} cannot create a file in its folder for temporary files", here.front());
  std::shared_ptr<FileStore> store = std::make_shared<FileStore>(theirs);
  if (path.empty()) return store;
  FileStore* const file = store.get();
  return {file, [store = std::move(store)](FileStore*) { store->remove_file(); }};
}

std::unique_ptr<Communicator> connect_host(Job& job, Communicator& all,
                                           const std::vector<int>& here, const std::string& name,
                                           DeviceImpl& device, std::chrono::milliseconds limit) {
  const auto place = std::find(here.begin(), here.end(), job.rank()) - here.begin();
  return connect_through(
      make_shm_backend({.store = job.transport() ? make_host_store(all, here) : job.store(),
                        .name = name,
                        .rank = static_cast<int>(place),
                        .size = static_cast<int>(here.size()),
                        .names = RankNames(here),
                        .time_limit = limit,
                        .membership = job.membership()}),
      job, device, limit);
}

// Shared memory inside the hosts, a network between their leaders. `all`: over the network.
std::unique_ptr<Communicator> connect_hosts(Job& job, std::unique_ptr<Communicator> all,
                                            DeviceImpl& device, std::chrono::milliseconds limit) {
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
  auto inner = connect_host(job, *all, hosts[mine], numbered(job, fmt::format("host {}", mine)),
                            device, limit);
  auto outer = all->split(first);
  return make_hierarchical_communicator(std::move(inner), std::move(outer),
                                        {.time_limit = limit,
                                         .ranks = std::move(ranks),
                                         .names = RankNames(),
                                         .direct = std::move(all)});
}

// As agree_on_backend(), over a communicator of the job's transport.
BackendChoice agree_over(Communicator& all, const ConnectOptions& options, bool warns) {
  const auto answers = choose_backends(exchange_bytes(all, properties_here(options.backend, "")),
                                       warns && all.rank() == 0, "transport");
  BackendChoice choice = parse_choice(answers[static_cast<std::size_t>(all.rank())]);
  if (choice.backend == "shm" && choice.hosts > 1)
    fail<InvalidArgumentError>("[connect] shm needs all ranks on one host, they are on {}",
                               choice.hosts);
  return choice;
}

std::unique_ptr<Communicator> connect_transport(Job& job, DeviceImpl& device,
                                                std::chrono::milliseconds limit) {
  return connect_through(
      make_transport_backend(
          {.transport = job.transport(), .name = numbered(job, "world"), .time_limit = limit}),
      job, device, limit);
}

// The ranks know each other already. Shared memory needs no thread that calls the transport.
std::unique_ptr<Communicator> connect_over_transport(Job& job, DeviceImpl& device,
                                                     const ConnectOptions& options) {
  auto all = connect_transport(job, device, options.time_limit);
  const BackendChoice choice = agree_over(*all, options, false);
  if (choice.backend == "hierarchical")
    return connect_hosts(job, std::move(all), device, options.time_limit);
  if (choice.backend != "shm") return all;
  std::vector<int> here(static_cast<std::size_t>(job.size()));
  std::iota(here.begin(), here.end(), 0);
  return connect_host(job, *all, here, numbered(job, "host"), device, options.time_limit);
}

// Local rank n uses GPU n, unless `device` is a GPU.
std::unique_ptr<Communicator> connect_gpus(Job& job, std::size_t place, DeviceImpl& device,
                                           std::chrono::milliseconds limit) {
  const NativeGpu* gpu = as_native(device);
  const NcclDevice where{&device, gpu ? gpu->ordinal() : static_cast<int>(place)};
  return connect_through(make_nccl_backend(world_of(job, limit), where), job, device, limit);
}

}  // namespace

void check_backend(const std::string& name) {
  if (std::find(kBackends.begin(), kBackends.end(), name) == kBackends.end())
    fail<InvalidArgumentError>("[connect] Invalid backend: '{}'; expected one of {}", name,
                               joined(kBackends, ", "));
}

DeviceImpl& host_memory() {
  static auto* device =
      new CpuDevice(DeviceName::parse("/job:localhost/replica:0/task:0/device:CPU:0"), 1);
  return *device;
}

std::string choose_backend(Job& job, const ConnectOptions& options) {
  if (job.transport()) {
    const auto all = connect_transport(job, host_memory(), options.time_limit);
    return agree_over(*all, options, true).backend;
  }
  return with_all_ranks(job, [&] { return agree_on_backend(job, options, true).backend; });
}

std::unique_ptr<Communicator> connect(Job& job, DeviceImpl& device, const ConnectOptions& options) {
  if (job.transport()) return connect_over_transport(job, device, options);
  return with_all_ranks(job, [&]() -> std::unique_ptr<Communicator> {
    const BackendChoice choice = agree_on_backend(job, options);
    if (choice.backend == "nccl")
      return connect_gpus(job, choice.place, device, options.time_limit);
    if (choice.backend == "hierarchical")
      return connect_hosts(
          job,
          connect_through(make_backend(choice.network, choice.hosts, job, options.time_limit), job,
                          device, options.time_limit),
          device, options.time_limit);
    return connect_through(make_backend(choice.backend, choice.hosts, job, options.time_limit), job,
                           device, options.time_limit);
  });
}

}  // namespace tandem
