// Messages of more than 2 GiB over a host's communicator: more bytes, and more elements, than an
// int counts.
//   mpirun -n 2 host_mpi_large BACKEND
// Exits with 77 where the machine has not 12 GiB to spare.
#include <mpi.h>
#include <tandem/mpi.h>
#include <tandem/tandem.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

namespace td = tandem;

namespace {

constexpr int kSkipped = 77;
constexpr std::int64_t kNeeded = std::int64_t{12} << 30;
constexpr std::int64_t kInts = std::numeric_limits<int>::max();
int failures = 0;

void expect(bool holds, const std::string& what) {
  if (holds) return;
  std::fprintf(stderr, "%s\n", what.c_str());
  ++failures;
}

std::int64_t available_memory() {
  std::ifstream file("/proc/meminfo");
  std::string name;
  std::int64_t kibibytes = 0;
  while (file >> name)
    if (name == "MemAvailable:" && file >> kibibytes) break;
  return kibibytes << 10;
}

constexpr std::int64_t kPeriod = 1021;
constexpr std::int64_t kBytes = kPeriod * (kInts / kPeriod + 1);
constexpr std::int64_t kFloats = kPeriod * (kInts / 4 / kPeriod + 1);

// Values that repeat with a period that divides no power of two.
td::Tensor pattern(std::int64_t size, td::DType dtype, int offset) {
  std::vector<float> period;
  for (std::int64_t i = 0; i < kPeriod; ++i)
    period.push_back(static_cast<float>((i + offset) % 100));
  return td::tile(td::cast(td::constant(period), dtype), {size / kPeriod});
}

// Whether x repeats what it begins with, and that is `first`. Takes no memory of x's size.
template <class T>
bool repeats(const td::Tensor& x, std::int64_t size, const td::Tensor& first) {
  const T* const data = x.data<T>();
  return x.size() == size && std::equal(data, data + kPeriod, first.data<T>()) &&
         std::equal(data + kPeriod, data + size, data);
}

void sum(int rank, const td::comm::ProcessGroup& group) {
  const td::Tensor result =
      td::comm::all_reduce(pattern(kFloats, td::float32, rank), {.group = group});
  const td::Tensor first = pattern(kPeriod, td::float32, 0) + pattern(kPeriod, td::float32, 1);
  expect(repeats<float>(result, kFloats, first), "a sum of more than 2 GiB is wrong");
}

void broadcast(int rank, const td::comm::ProcessGroup& group) {
  const td::Tensor result = td::comm::broadcast(
      rank == 1 ? pattern(kBytes, td::uint8, 7) : td::zeros({kBytes}, td::uint8), 1,
      {.group = group});
  expect(repeats<std::uint8_t>(result, kBytes, pattern(kPeriod, td::uint8, 7)),
         "a broadcast of more than 2 GiB is wrong");
}

void message(int rank, const td::comm::ProcessGroup& group) {
  if (rank == 0) return td::comm::send(pattern(kBytes, td::uint8, 3), 1, {.group = group});
  const td::Tensor result = td::comm::recv({kBytes}, 0, {.dtype = td::uint8, .group = group});
  expect(repeats<std::uint8_t>(result, kBytes, pattern(kPeriod, td::uint8, 3)),
         "a message of more than 2 GiB is wrong");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  MPI_Init(&argc, &argv);
  int rank = 0, has_room = available_memory() >= kNeeded;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Bcast(&has_room, 1, MPI_INT, 0, MPI_COMM_WORLD);
  if (has_room) {
    const td::comm::ProcessGroup group = td::comm::from_mpi(
        MPI_COMM_WORLD, {.backend = argv[1], .timeout = std::chrono::seconds(120)});
    sum(rank, group);
    broadcast(rank, group);
    message(rank, group);
  }
  MPI_Finalize();
  return failures != 0 ? 1 : has_room ? 0 : kSkipped;
}
