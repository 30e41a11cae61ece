// A host that makes groups over its own communicators (tandem/mpi.h), at any thread level.
//   mpirun -n 3 host_mpi_group LEVEL BACKEND before|after|never
// Three ranks. Two groups share rank 1; the world's ranks form a third. Counts the calls of MPI's
// functions by threads other than the main one, and those after MPI_Finalize.
#include <tandem/mpi.h>
#include <tandem/tandem.h>

#include <chrono>
#include <optional>
#include <string>

#include "counted_mpi.h"

namespace td = tandem;
using host::expect;

namespace {

constexpr std::int64_t kElements = 1 << 18;  // more than one window for each rank
const td::comm::TransportOptions kAny{.timeout = std::chrono::seconds(60)};

// The host's own traffic, on the communicator of the group.
void exchange_halo(MPI_Comm comm) {
  int rank = 0, size = 0;
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &size);
  double mine = rank, theirs = -1.0;
  MPI_Sendrecv(&mine, 1, MPI_DOUBLE, (rank + 1) % size, 1, &theirs, 1, MPI_DOUBLE,
               (rank + size - 1) % size, 1, comm, MPI_STATUS_IGNORE);
  expect(theirs == (rank + size - 1) % size, "the host's own messages are wrong");
}

td::Tensor mine(double value) { return td::full({kElements}, value); }

double sum_over(const td::comm::ProcessGroup& group, double value) {
  return td::comm::all_reduce(mine(value), {.group = group})[kElements - 1].item();
}

// Ranks 0 and 1, and ranks 1 and 2.
void overlapping_groups(int rank, const td::comm::TransportOptions& options) {
  std::optional<td::comm::ProcessGroup> low, high;
  for (const int first : {0, 1}) {
    MPI_Comm comm = MPI_COMM_NULL;
    const bool in = rank == first || rank == first + 1;
    MPI_Comm_split(MPI_COMM_WORLD, in ? 0 : MPI_UNDEFINED, rank, &comm);
    if (!in) continue;
    (first == 0 ? low : high) = td::comm::from_mpi(comm, options);
    MPI_Comm_free(&comm);
  }
  for (int step = 0; step < 3; ++step) {
    if (low) expect(sum_over(*low, rank + 1) == 3.0, "the sum of ranks 0 and 1 is wrong");
    if (high) expect(sum_over(*high, rank + 1) == 5.0, "the sum of ranks 1 and 2 is wrong");
  }
  if (low) expect(low->rank() == rank && low->size() == 2, "rank or size is wrong");
  if (high) expect(high->rank() == rank - 1 && high->size() == 2, "rank or size is wrong");
}

// Every rank gets the same error, and the host goes on.
void mismatch(int rank, const td::comm::TransportOptions& options) {
  const td::comm::ProcessGroup group = td::comm::from_mpi(MPI_COMM_WORLD, options);
  try {
    static_cast<void>(td::comm::all_reduce(td::zeros({rank == 1 ? 3 : 4}), {.group = group}));
    expect(false, "different sizes were reduced");
  } catch (const td::InvalidArgumentError& error) {
    expect(std::string(error.what()).find("rank 1") != std::string::npos,
           std::string("the error does not name the rank: ") + error.what());
  }
  exchange_halo(MPI_COMM_WORLD);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const int level = host::level_of(argv[1]);
  td::comm::TransportOptions options = kAny;
  options.backend = argv[2];
  const std::string order = argv[3];
  int provided = 0, rank = 0;
  MPI_Init_thread(&argc, &argv, level, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  overlapping_groups(rank, options);
  mismatch(rank, options);
  auto group = std::make_optional(td::comm::from_mpi(MPI_COMM_WORLD, options));
  expect(group->backend() == (options.backend == "auto" ? "shm" : options.backend),
         "the backend is " + group->backend());
  for (int step = 0; step < 5; ++step) {
    td::comm::Work work = td::comm::all_reduce_async(mine(rank + 1), {.group = *group});
    for (int i = 0; i < 20; ++i) exchange_halo(MPI_COMM_WORLD);
    expect(work.result()[0].item() == 6.0, "a sum is wrong");
  }
  if (provided < MPI_THREAD_MULTIPLE)
    expect(host::calls_elsewhere == 0, "threads other than the main one have called MPI");
  if (order == "after") {
    td::comm::destroy_process_group(*group);
    group.reset();
  }
  host::finalize();
  if (group && options.backend == "transport") {
    try {
      sum_over(*group, 1.0);
      expect(false, "a collective after MPI_Finalize has ended");
    } catch (const td::AbortedError&) {
    }
  }
  if (order == "before") td::comm::destroy_process_group(*group);
  if (order != "never") group.reset();
  expect(host::calls_after_finalize == 0, "MPI was called after MPI_Finalize");
  return host::failures != 0;
}
