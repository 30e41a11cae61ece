// An all-reduce of float32 between processes of this host, timed: buffers that the backend has
// allocated (shared memory, with shm) and plain ones. Prints one JSON line per size.
//
//     allreduce [--backend shm|gloo|hierarchical] [--ranks 2] [--seconds 0.5] [--bytes N]
//     mpirun -n 2 allreduce --backend mpi [...]
//     link --mbit 1000 allreduce --backend gloo [...]    (a rank of a job, where RANK is set)
//
// hierarchical emulates two hosts, each with half of the ranks: shm inside, gloo between. The
// peers, peers/gloo_allreduce.cc, peers/mpi_allreduce.cc and peers/torch_allreduce.py, have the
// same options and output.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "comm/device_memory.h"
#include "comm/gloo/gloo_backend.h"
#include "comm/hierarchical/hierarchical_communicator.h"
#include "comm/mpi/mpi_backend.h"
#include "comm/process/process_communicator.h"
#include "comm/rendezvous/rendezvous.h"
#include "comm/shm/shm_backend.h"
#include "core/parallel.h"
#include "device/device_manager.h"
#include "support/forked_store.h"

namespace {

using Clock = std::chrono::steady_clock;
namespace td = tandem;

struct AllReduceOptions {
  std::string backend = "shm";
  int ranks = 2;
  double seconds = 0.5;   // of each measurement
  std::size_t bytes = 0;  // 0: 4 KiB to 100 MiB
};

AllReduceOptions parse(int argc, char** argv) {
  AllReduceOptions options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string key = argv[i];
    if (key == "--backend") options.backend = argv[i + 1];
    if (key == "--ranks") options.ranks = std::atoi(argv[i + 1]);
    if (key == "--seconds") options.seconds = std::atof(argv[i + 1]);
    if (key == "--bytes") options.bytes = std::strtoull(argv[i + 1], nullptr, 10);
  }
  return options;
}

// Microseconds of one all-reduce: the median of five stretches.
double measure(td::Communicator& communicator, const td::Buffer& buffer, double seconds) {
  const auto run = [&](int times) {
    communicator.barrier()->wait();
    const auto begin = Clock::now();
    for (int i = 0; i < times; ++i)
      communicator.all_reduce({&buffer, 1}, td::ReduceOp::kSum)->wait();
    return std::chrono::duration<double>(Clock::now() - begin).count() / times;
  };
  run(3);
  // Rank 0 chooses the number for all.
  int times = std::max(3, static_cast<int>(seconds / 5 / run(3)));
  std::vector<int> all(static_cast<std::size_t>(communicator.size()));
  communicator.exchange(&times, sizeof(times), all.data());
  std::vector<double> stretches;
  for (int i = 0; i < 5; ++i) stretches.push_back(run(all.front()));
  std::sort(stretches.begin(), stretches.end());
  return stretches[2] * 1e6;
}

void run_rank(td::Communicator& communicator, const AllReduceOptions& options) {
  std::vector<std::size_t> sizes = {std::size_t{4} << 10,  std::size_t{64} << 10,
                                    std::size_t{1} << 20,  std::size_t{4} << 20,
                                    std::size_t{25} << 20, std::size_t{100} << 20};
  if (options.bytes > 0) sizes = {options.bytes};
  for (std::size_t bytes : sizes) {
    const auto count = static_cast<std::int64_t>(bytes / sizeof(float));
    double us[2];
    for (int shared = 0; shared < 2; ++shared) {
      const auto memory =
          shared ? communicator.allocate(bytes)
                 : td::allocate_on(communicator.device(), bytes, "allreduce", "a buffer");
      auto* values = static_cast<float*>(memory.get());
      for (std::int64_t i = 0; i < count; ++i) values[i] = static_cast<float>(i % 13 - 6);
      us[shared] = measure(communicator, {memory.get(), count, td::float32}, options.seconds);
    }
    const auto gbps = [&](double time) { return static_cast<double>(bytes) / time * 1e-3; };
    if (communicator.rank() == 0)
      std::printf(
          "{\"program\": \"allreduce\", \"backend\": \"%s\", \"ranks\": %d, \"bytes\": %zu, "
          "\"shared_us\": %.2f, \"shared_gbps\": %.2f, \"plain_us\": %.2f, \"plain_gbps\": %.2f}\n",
          options.backend.c_str(), communicator.size(), bytes, us[1], gbps(us[1]), us[0],
          gbps(us[0]));
  }
}

std::unique_ptr<td::Communicator> through(std::unique_ptr<td::Backend> backend) {
  td::DeviceImpl& device = *td::DeviceManager::get().devices(td::DeviceType::kCpu, "bench").front();
  return td::make_process_communicator(std::move(backend), device);
}

std::unique_ptr<td::Communicator> through_shm(std::shared_ptr<td::Store> store,
                                              const std::string& name, int rank, int size) {
  return through(
      td::make_shm_backend({.store = std::move(store), .name = name, .rank = rank, .size = size}));
}

std::unique_ptr<td::Communicator> through_gloo(std::shared_ptr<td::Store> store, int rank,
                                               int size) {
  return through(td::make_gloo_backend(
      {.store = std::move(store), .name = "bench", .rank = rank, .size = size}));
}

void run_rank_of_job(const AllReduceOptions& options) {
  const td::ThreadBudget one(1);
  const auto job = td::rendezvous("env://");
  {
    const auto communicator = through(td::make_gloo_backend(
        {.store = job->store(), .name = "bench", .rank = job->rank(), .size = job->size()},
        {.master = job->master()}));
    run_rank(*communicator, options);
  }
  job->shut_down();
}

std::unique_ptr<td::Communicator> through_both(std::shared_ptr<td::Store> store, int rank,
                                               int size) {
  const int half = size / 2, host = rank < half ? 0 : 1;
  const int place = host == 0 ? rank : rank - half;
  auto inner =
      through_shm(store, "host " + std::to_string(host), place, host == 0 ? half : size - half);
  auto outer = place == 0 ? through_gloo(store, host, 2) : nullptr;
  return td::make_hierarchical_communicator(std::move(inner), std::move(outer));
}

}  // namespace

int main(int argc, char** argv) {
  const AllReduceOptions options = parse(argc, argv);
  if (options.backend == "mpi") {
    const td::ThreadBudget one(1);
    run_rank(*through(td::make_mpi_backend()), options);
    return 0;
  }
  if (std::getenv("RANK")) {
    run_rank_of_job(options);
    return 0;
  }
  const auto store = std::make_shared<td::ForkedStore>();
  for (int rank = 0; rank < options.ranks; ++rank) {
    if (fork() != 0) continue;
    const td::ThreadBudget one(1);
    if (options.backend == "gloo")
      run_rank(*through_gloo(store, rank, options.ranks), options);
    else if (options.backend == "hierarchical")
      run_rank(*through_both(store, rank, options.ranks), options);
    else
      run_rank(*through_shm(store, "bench", rank, options.ranks), options);
    return 0;
  }
  int worst = 0;
  for (int status = 0; wait(&status) > 0;) worst = std::max(worst, status);
  return worst == 0 ? 0 : 1;
}
