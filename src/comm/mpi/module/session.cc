#include "comm/mpi/module/session.h"

#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <memory>
#include <thread>

#include "comm/stall.h"
#include "core/env.h"
#include "core/log.h"
#include "core/status.h"

namespace tandem::mpi_backend {
namespace {

using Clock = std::chrono::steady_clock;

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
      _exit(MpiSession::kExitCode);
    }
  }

  const MpiOptions& options_;
  std::mutex mutex_;
  std::condition_variable over_;
  bool is_over_ = false;
  std::thread thread_;
};

}  // namespace

void check(int code, const char* what) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  fail<UnavailableError>("[mpi] {}: {}", what, text);
}

MpiSession& MpiSession::get(const MpiOptions& options) {
  if (const std::string text = obstacle(options.rank, options.size); !text.empty())
    fail<FailedPreconditionError>("[mpi] {}", text);
  static auto& session = *new MpiSession(options);
  static std::once_flag once;
  std::call_once(once,
                 [&] { session.notices_ = duplicate(session, MPI_COMM_WORLD, options, "job"); });
  return session;
}

std::string MpiSession::obstacle(int rank, int size) {
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

MpiSession::MpiSession(const MpiOptions& options)
    : time_limit_(options.time_limit), membership_(options.membership) {
  int initialized = 0, provided = MPI_THREAD_SINGLE;
  MPI_Initialized(&initialized);
  if (initialized) {
    check(MPI_Query_thread(&provided), "MPI_Query_thread");
  } else {
    const InitWatch watch(options);
    check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided), "MPI_Init_thread");
    // on_exit handlers receive the exit status; those of atexit() and static objects do not.
    on_exit([](int status, void* session) { static_cast<MpiSession*>(session)->end(status); },
            this);
    if (provided < MPI_THREAD_SERIALIZED)
      fail<UnavailableError>("[mpi] this MPI has no MPI_THREAD_SERIALIZED");
  }
  multithreaded_ = provided == MPI_THREAD_MULTIPLE;
  check(MPI_Comm_rank(MPI_COMM_WORLD, &rank_), "MPI_Comm_rank");
  check(MPI_Comm_size(MPI_COMM_WORLD, &size_), "MPI_Comm_size");
  watch_finalize();
}

// MPI_Finalize deletes the attributes of MPI_COMM_SELF before anything else.
void MpiSession::watch_finalize() {
  const auto end = [](MPI_Comm, int, void* session, void*) {
    static_cast<MpiSession*>(session)->end_with_mpi();
    return MPI_SUCCESS;
  };
  int key = MPI_KEYVAL_INVALID;
  check(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, end, &key, nullptr),
        "MPI_Comm_create_keyval");
  check(MPI_Comm_set_attr(MPI_COMM_SELF, key, this), "MPI_Comm_set_attr");
}

void MpiSession::end_with_mpi() noexcept {
  const std::lock_guard lock(mutex_);
  for (Client* client : clients_) client->end_with_mpi();
  try {
    if (notices_ != MPI_COMM_NULL) say_goodbye();
  } catch (const Error& error) {
    logging::debug("[mpi] no goodbye: {}", error.what());
  }
  finalized_ = true;
}

std::unique_lock<std::mutex> MpiSession::enter() {
  std::unique_lock lock(mutex_);
  if (finalized_) fail<AbortedError>("[mpi] the program has called MPI_Finalize");
  return lock;
}

std::unique_lock<std::mutex> MpiSession::enter_if_running() noexcept {
  std::unique_lock lock(mutex_);
  if (finalized_) lock.unlock();
  return lock;
}

void MpiSession::add(Client& client) {
  const std::lock_guard lock(mutex_);
  clients_.push_back(&client);
}

void MpiSession::remove(Client& client) {
  const std::lock_guard lock(mutex_);
  std::erase(clients_, &client);
}

void MpiSession::end(int status) noexcept {
  if (status != 0) return;
  try {
    if (meet_at_exit()) MPI_Finalize();
  } catch (const std::exception& error) {
    logging::debug("[mpi] MPI is not finalised: {}", error.what());
  }
}

void MpiSession::say_goodbye() {
  if (std::exchange(said_goodbye_, true)) return;
  for (int rank = 0; rank < size_; ++rank)
    if (rank != rank_) send(rank, {.group = kEveryGroup, .rank = rank_});
}

bool MpiSession::meet_at_exit() {
  MPI_Request barrier = MPI_REQUEST_NULL;
  {
    const auto lock = enter_if_running();
    if (!lock || notices_ == MPI_COMM_NULL || skips_finalize_) return false;
    say_goodbye();
    check(MPI_Ibarrier(notices_, &barrier), "MPI_Ibarrier");
  }
  const auto deadline = Clock::now() + time_limit_;
  for (;;) {
    {
      const auto lock = enter();
      int done = 0;
      check(MPI_Test(&barrier, &done, MPI_STATUS_IGNORE), "MPI_Ibarrier");
      if (done) {
        take_notices(kEveryGroup);  // receives messages that MPI_Finalize would leave
        return true;
      }
    }
    const std::shared_ptr<const Membership> membership = membership_.lock();
    if (membership && membership->failed()) return false;
    if (Clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
}

int MpiSession::local_size() const {
  return static_cast<int>(env_int("OMPI_COMM_WORLD_LOCAL_SIZE", 1).value_or(1));
}

void MpiSession::send(int rank, const Notice& notice) {
  std::erase_if(sent_notices_, [](const auto& sent) {
    int done = 0;
    MPI_Test(&sent->request, &done, MPI_STATUS_IGNORE);
    return done != 0;
  });
  auto sent = std::make_unique<SentNotice>(SentNotice{notice, MPI_REQUEST_NULL});
  check(MPI_Isend(&sent->notice, sizeof(Notice), MPI_BYTE, rank, 0, notices_, &sent->request),
        "MPI_Isend");
  sent_notices_.push_back(std::move(sent));
}

std::vector<Notice> MpiSession::take_notices(std::uint64_t group) {
  // A probe that finds nothing lets MPI receive messages, which only the next probe sees.
  for (int misses = 0; misses < 2;) {
    int here = 0;
    MPI_Status status;
    check(MPI_Iprobe(MPI_ANY_SOURCE, 0, notices_, &here, &status), "MPI_Iprobe");
    if (!here) {
      ++misses;
      continue;
    }
    Notice notice;
    check(MPI_Recv(&notice, sizeof(Notice), MPI_BYTE, status.MPI_SOURCE, 0, notices_,
                   MPI_STATUS_IGNORE),
          "MPI_Recv");
    notice.text[sizeof(notice.text) - 1] = 0;
    if (notice.group == kEveryGroup)
      ended_.try_emplace(notice.rank, Clock::now());
    else
      received_notices_[notice.group].push_back(notice);
  }
  const auto found = received_notices_.find(group);
  if (found == received_notices_.end()) return {};
  std::vector<Notice> notices = std::move(found->second);
  received_notices_.erase(found);
  return notices;
}

std::optional<Clock::time_point> MpiSession::ended(int rank) const {
  const auto found = ended_.find(rank);
  if (found == ended_.end()) return std::nullopt;
  return found->second;
}

MPI_Comm duplicate(MpiSession& session, MPI_Comm from, const MpiOptions& options,
                   const std::string& group) {
  const auto deadline = Clock::now() + options.time_limit;
  LongWait wait;
  const auto describe = [&](std::chrono::milliseconds time) {
    return fmt::format("[mpi] not all ranks joined group '{}' within {} ms", group, time.count());
  };
  MPI_Comm copy = MPI_COMM_NULL;
  MPI_Request request;
  {
    const auto lock = session.enter();
    check(MPI_Comm_idup(from, &copy, &request), "MPI_Comm_idup");
  }
  for (;;) {
    int done = 0;
    {
      const auto lock = session.enter();
      check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Comm_idup");
      if (done) {
        check(MPI_Comm_set_errhandler(copy, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
        return copy;
      }
    }
    if (options.membership && options.membership->failed()) {
      session.skip_finalize();
      options.membership->throw_failure();
    }
    if (Clock::now() > deadline) {
      session.skip_finalize();
      throw DeadlineExceededError(describe(options.time_limit));
    }
    if (session.rank() == 0) wait.look(describe);  // warns for all
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
}

}  // namespace tandem::mpi_backend
