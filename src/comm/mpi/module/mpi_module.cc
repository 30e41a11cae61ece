// MPI in this process: when it begins and ends. The entry points of the module that libtandem
// loads.
#include <tandem_mpi_transport.h>
#include <unistd.h>

#include <condition_variable>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <thread>

#include "comm/mpi/mpi_backend.h"
#include "comm/stall.h"
#include "comm/transport/transport.h"
#include "core/log.h"
#include "core/status.h"

namespace tandem::mpi_module {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kPause = std::chrono::microseconds(200);

// Used at the end of the process, if Tandem has initialised MPI.
struct World {
  MPI_Comm comm = MPI_COMM_NULL;  // null until all ranks have joined
  std::chrono::milliseconds time_limit{};
  std::weak_ptr<const Membership> membership;
};
World& world() {
  static auto& instance = *new World;
  return instance;
}

void check(int code, const char* what) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING + 1] = "";
  tandem_mpi_text(nullptr, code, text, sizeof(text));
  fail<UnavailableError>("[mpi] {}: {}", what, text);
}

// A number of the launcher: Open MPI, or another that uses PMI. -1 if there is none.
int number_of(const char* name, const char* other) {
  const char* text = std::getenv(name) ? std::getenv(name) : std::getenv(other);
  return text ? std::atoi(text) : -1;
}

// Ends the process if the job fails while this thread is in MPI_Init_thread, which waits for every
// rank of mpirun without a limit. mpirun itself does not end a job whose rank is stopped or exits
// with 0.
class InitWatch {
 public:
  explicit InitWatch(const MpiOptions& options) : options_(options), thread_([this] { run(); }) {}
  ~InitWatch() {
    {
      const std::lock_guard lock(mutex_);
      is_over_ = true;
    }
    over_.notify_one();
    thread_.join();
  }
  InitWatch(const InitWatch&) = delete;
  InitWatch& operator=(const InitWatch&) = delete;

 private:
  void run() {
    constexpr std::chrono::milliseconds kLook(50);
    const auto deadline = Clock::now() + options_.time_limit;
    const auto describe = [](std::chrono::milliseconds time) {
      return fmt::format("[mpi] MPI_Init_thread did not return within {} ms", time.count());
    };
    LongWait wait;
    std::unique_lock lock(mutex_);
    try {
      while (!over_.wait_for(lock, kLook, [this] { return is_over_; })) {
        if (options_.membership && options_.membership->failed())
          options_.membership->throw_failure();
        if (Clock::now() > deadline) throw DeadlineExceededError(describe(options_.time_limit));
        if (options_.rank == 0) wait.look(describe);  // warns for all
      }
    } catch (const Error& error) {
      logging::error(
          "{}: {}. This process is in MPI_Init_thread, which cannot be interrupted, and ends",
          error.kind(), error.what());
      _exit(1);
    }
  }

  const MpiOptions& options_;
  std::mutex mutex_;
  std::condition_variable over_;
  bool is_over_ = false;
  std::thread thread_;
};

// Why MPI cannot connect this process as this rank of a job; -1: any. Empty if it can.
std::string obstacle(int rank, int size) {
  int initialized = 0, finalized = 0, provided = MPI_THREAD_SINGLE;
  MPI_Initialized(&initialized);
  MPI_Finalized(&finalized);
  if (finalized) return "the program has already called MPI_Finalize";
  int its_rank = number_of("OMPI_COMM_WORLD_RANK", "PMI_RANK");
  int its_size = number_of("OMPI_COMM_WORLD_SIZE", "PMI_SIZE");
  if (initialized) {
    check(MPI_Query_thread(&provided), "MPI_Query_thread");
    if (provided < MPI_THREAD_SERIALIZED)
      return "MPI was initialised for one thread: call MPI_Init_thread with MPI_THREAD_SERIALIZED "
             "or MPI_THREAD_MULTIPLE instead of MPI_Init";
    check(MPI_Comm_rank(MPI_COMM_WORLD, &its_rank), "MPI_Comm_rank");
    check(MPI_Comm_size(MPI_COMM_WORLD, &its_size), "MPI_Comm_size");
  } else if (its_size < 0 && !std::getenv("PMIX_NAMESPACE")) {
    return "this process was not started by mpirun: run `mpirun -n 4 PROGRAM`, or choose another "
           "backend";
  }
  const auto differ = [](int one, int other) { return one >= 0 && other >= 0 && one != other; };
  if (!differ(rank, its_rank) && !differ(size, its_size)) return "";
  return fmt::format(
      "mpirun assigned rank {} of {} to this process, but the job expects rank {} of {}: launch "
      "the processes with mpirun only",
      its_rank, its_size, rank, size);
}

// Whether every rank exits. Not if one has failed or the time limit has passed.
bool meet_at_exit() {
  if (world().comm == MPI_COMM_NULL || !tandem_mpi_alive(nullptr) || !Transport::leave_all())
    return false;
  MPI_Request barrier = MPI_REQUEST_NULL;
  {
    const auto lock = Transport::enter();
    check(MPI_Ibarrier(world().comm, &barrier), "MPI_Ibarrier");
  }
  const auto deadline = Clock::now() + world().time_limit;
  for (;;) {
    int done = 0;
    {
      const auto lock = Transport::enter();
      check(MPI_Test(&barrier, &done, MPI_STATUS_IGNORE), "MPI_Ibarrier");
    }
    if (done) return true;
    const std::shared_ptr<const Membership> membership = world().membership.lock();
    if (membership && membership->failed()) return false;
    if (Clock::now() > deadline) return false;
    std::this_thread::sleep_for(kPause);
  }
}

// A process that exits with an error, or knows of a failed rank, skips MPI_Finalize, which would
// block forever; mpirun ends a job whose process exits without it.
void end(int status, void*) {
  if (status != 0) return;
  try {
    if (meet_at_exit()) MPI_Finalize();
  } catch (const std::exception& error) {
    logging::debug("[mpi] MPI is not finalised: {}", error.what());
  }
}

// Initialises MPI unless the program has done so.
void initialize(const MpiOptions& options) {
  int initialized = 0, provided = MPI_THREAD_SINGLE;
  MPI_Initialized(&initialized);
  if (initialized) return;
  const InitWatch watch(options);
  check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided), "MPI_Init_thread");
  // on_exit handlers receive the exit status; those of atexit() and static objects do not.
  on_exit(end, nullptr);
  if (provided < MPI_THREAD_SERIALIZED)
    fail<UnavailableError>("[mpi] this MPI has no MPI_THREAD_SERIALIZED");
}

// A duplicate of MPI_COMM_WORLD. Waits for all ranks.
MPI_Comm duplicate(const MpiOptions& options) {
  const auto deadline = Clock::now() + options.time_limit;
  LongWait wait;
  const auto describe = [](std::chrono::milliseconds time) {
    return fmt::format("[mpi] not all ranks joined group 'job' within {} ms", time.count());
  };
  int rank = 0;
  MPI_Comm copy = MPI_COMM_NULL;
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Comm_rank(MPI_COMM_WORLD, &rank), "MPI_Comm_rank");
  check(MPI_Comm_idup(MPI_COMM_WORLD, &copy, &request), "MPI_Comm_idup");
  for (int done = 0;;) {
    check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Comm_idup");
    if (done) return copy;
    if (options.membership && options.membership->failed()) options.membership->throw_failure();
    if (Clock::now() > deadline) throw DeadlineExceededError(describe(options.time_limit));
    if (rank == 0) wait.look(describe);  // warns for all
    std::this_thread::sleep_for(kPause);
  }
}

}  // namespace
}  // namespace tandem::mpi_module

extern "C" __attribute__((visibility("default"))) void tandem_mpi_obstacle(int rank, int size,
                                                                           std::string* text) {
  *text = tandem::mpi_module::obstacle(rank, size);
}

// The first call waits for all ranks of the job. MPI_Init_thread cannot be interrupted: if the
// membership fails meanwhile or the time limit passes, the error is logged and the process ends.
extern "C" __attribute__((visibility("default"))) void tandem_connect_mpi(
    const tandem::MpiOptions* options, tandem_transport* functions) {
  using namespace tandem::mpi_module;
  initialize(*options);
  const MPI_Comm comm = duplicate(*options);
  check(tandem_mpi_take(comm, functions), "MPI_Comm_dup");
  world() = {comm, options->time_limit, options->membership};
}
