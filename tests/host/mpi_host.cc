// A host that owns MPI. It initialises MPI at a thread level, and calls it between and during the
// operations of Tandem. It finalises MPI before it tears Tandem down, afterwards, or without that.
//   mpirun -n 2 host_mpi_host LEVEL hvd|group BACKEND before|after|never
// Two ranks. Counts the calls of MPI's functions by threads other than the main one.
#include <mpi.h>
#include <tandem/tandem.h>
#include <unistd.h>

#include <chrono>
#include <optional>
#include <string>

#include "counted_mpi.h"

namespace td = tandem;
using host::expect;
using host::finalize;

namespace {

constexpr std::chrono::seconds kLimit(60);
constexpr std::int64_t kElements = 1 << 18;  // more than one message

// The host's own traffic.
void exchange_halo(int rank) {
  double mine = rank + 1.0, sum = 0.0, theirs = 0.0;
  MPI_Sendrecv(&mine, 1, MPI_DOUBLE, 1 - rank, 7, &theirs, 1, MPI_DOUBLE, 1 - rank, 7,
               MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  MPI_Allreduce(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  expect(sum == 3.0 && theirs == 2.0 - rank, "the host's own messages are wrong");
}

// Tandem's calls, by either interface.
class Api {
 public:
  Api(bool hvd, const std::string& backend) : hvd_(hvd) {
    if (hvd_)
      td::hvd::init({.backend = backend, .timeout = kLimit});
    else
      td::comm::init_process_group({.backend = backend, .timeout = kLimit});
  }
  void start(const td::Tensor& x) {
    if (hvd_)
      handle_ = td::hvd::allreduce_async(x, {.op = td::hvd::kSum});
    else
      work_ = td::comm::all_reduce_async(x);
  }
  td::Tensor finish() { return hvd_ ? td::hvd::synchronize(handle_) : work_->result(); }
  // Without a call that waits.
  void poll_until_done() const {
    while (hvd_ && !td::hvd::poll(handle_)) usleep(100);
  }
  void tear_down() {
    if (hvd_)
      td::hvd::shutdown();
    else
      td::comm::destroy_process_group();
  }

 private:
  const bool hvd_;
  td::hvd::Handle handle_;
  std::optional<td::comm::Work> work_;
};

td::Tensor ranks_tensor(int rank) { return td::full({kElements}, rank + 1.0); }

// Calls after MPI_Finalize throw an error with a type; an operation that was under way may also
// have ended well.
void use_after_finalize(Api& api, int rank) {
  try {
    api.finish();
  } catch (const td::AbortedError&) {
  }
  try {
    api.start(ranks_tensor(rank));
    api.finish();
    expect(false, "a collective after MPI_Finalize has ended");
  } catch (const td::AbortedError& error) {
    expect(std::string(error.what()).find("MPI_Finalize") != std::string::npos ||
               std::string(error.what()).find("has left") != std::string::npos,
           std::string("the error does not say why: ") + error.what());
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  const int level = host::level_of(argv[1]);
  const bool hvd = std::string(argv[2]) == "hvd";
  const std::string backend = argv[3], order = argv[4];
  int provided = 0, rank = 0;
  MPI_Init_thread(&argc, &argv, level, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (level < MPI_THREAD_SERIALIZED && backend == "mpi") {
    try {
      Api api(hvd, backend);
      api.start(ranks_tensor(rank));
      expect(false, "mpi was taken at a level that is too low");
    } catch (const td::Error& error) {  // of the type of this rank's, or AbortedError
      expect(std::string(error.what()).find("call MPI_Init_thread with MPI_THREAD_SERIALIZED") !=
                 std::string::npos,
             std::string("the error does not say what to ask for: ") + error.what());
    }
    MPI_Finalize();
    return host::failures != 0;
  }

  Api api(hvd, backend);
  for (int step = 0; step < 10; ++step) {
    api.start(ranks_tensor(rank));
    for (int i = 0; i < 50; ++i) exchange_halo(rank);
    if (step % 2 == 0) api.poll_until_done();
    expect(api.finish()[kElements - 1].item() == 3.0, "a sum is wrong");
  }
  if (level < MPI_THREAD_MULTIPLE)
    expect(host::calls_elsewhere == 0, "threads other than the main one have called MPI");
  if (order == "after") {
    api.tear_down();
    finalize();
    return host::failures != 0;
  }
  api.start(ranks_tensor(rank));
  finalize();
  if (backend == "mpi") use_after_finalize(api, rank);
  if (order == "before") api.tear_down();
  expect(host::calls_after_finalize == 0, "MPI was called after MPI_Finalize");
  return host::failures != 0;
}
