#include "group/connect.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "comm/gloo/gloo_backend.h"
#include "comm/host_identity.h"
#include "comm/mpi/mpi_backend.h"
#include "comm/process/process_communicator.h"
#include "comm/shm/shm_backend.h"
#include "comm/signature.h"
#include "core/env.h"
#include "core/status.h"

namespace tandem {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::array<std::string_view, 6> kBackends = {"auto", "shm",          "gloo",
                                                       "mpi",  "hierarchical", "nccl"};

// What a rank tells of itself, for all to make the same choice.
struct Seat {
  std::string host;
  bool mpi = false;
};

// The same for all ranks, and for no other call: how often this rank has called for `what`.
std::string numbered(Job& job, const std::string& what) {
  const std::string counter = fmt::format("connect/{}/calls of {}", what, job.rank());
  return fmt::format("{} {}", what, job.store()->add(counter, 1) - 1);
}

std::vector<Seat> exchange_seats(Job& job, std::chrono::milliseconds limit) {
  const Clock::time_point deadline = Clock::now() + limit;
  const std::string round = numbered(job, "seats");
  const auto key = [&](int rank) { return fmt::format("connect/{}/{}", round, rank); };
  const bool mpi = (env_string("OMPI_COMM_WORLD_SIZE") || env_string("PMI_SIZE")) && has_mpi();
  job.store()->set(key(job.rank()), fmt::format("{}{}", mpi ? "m" : "-", host_identity()));
  std::vector<Seat> seats;
  std::vector<int> missing;
  for (int rank = 0; rank < job.size(); ++rank) {
    try {
      const std::string text = job.store()->get(key(rank), deadline);
      seats.push_back({text.substr(1), text.front() == 'm'});
    } catch (const DeadlineExceededError&) {
      missing.push_back(rank);
    }
  }
  if (!missing.empty())
    fail<DeadlineExceededError>("[connect] {} did not come to choose a backend within {} ms",
                                list_ranks(missing), limit.count());
  return seats;
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
                             .time_limit = limit,
                             .membership = job.membership()});
  TANDEM_ASSERT(backend == "gloo");
  return make_gloo_backend({.store = job.store(),
                            .name = name,
                            .rank = job.rank(),
                            .size = job.size(),
                            .interface = "",
                            .address = "",
                            .master = job.master(),
                            .time_limit = limit,
                            .membership = job.membership()});
}

}  // namespace

void check_backend(const std::string& name) {
  if (std::find(kBackends.begin(), kBackends.end(), name) == kBackends.end())
    fail<InvalidArgumentError>("[connect] Invalid backend: '{}'; expected one of {}", name,
                               fmt::join(kBackends, ", "));
  if (name == "hierarchical" || name == "nccl")
    fail<UnimplementedError>("[connect] this build has no backend '{}'", name);
}

std::string choose_backend(Job& job, const ConnectOptions& options) {
  check_backend(options.backend);
  if (options.backend != "auto") return options.backend;
  const std::vector<Seat> seats = exchange_seats(job, options.time_limit);
  const auto with_the_first = [&](const Seat& seat) { return seat.host == seats.front().host; };
  if (std::all_of(seats.begin(), seats.end(), with_the_first)) return "shm";
  const bool mpi =
      std::all_of(seats.begin(), seats.end(), [](const Seat& seat) { return seat.mpi; });
  return mpi ? "mpi" : "gloo";
}

std::unique_ptr<Communicator> connect(Job& job, Device& device, const ConnectOptions& options) {
  const std::string backend = choose_backend(job, options);
  return make_process_communicator(
      make_backend(backend, job, options.time_limit), device,
      {.time_limit = options.time_limit, .membership = job.membership()});
}

}  // namespace tandem
