#include "comm/mpi/module/session.h"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <thread>

#include "core/env.h"
#include "core/log.h"
#include "core/status.h"

namespace tandem::mpi_backend {
namespace {

using Clock = std::chrono::steady_clock;

// Open MPI and other launchers that use PMI.
bool started_by_launcher() {
  return std::getenv("OMPI_COMM_WORLD_SIZE") || std::getenv("PMIX_NAMESPACE") ||
         std::getenv("PMI_SIZE");
}

}  // namespace

void check(int code, const char* what) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  fail<UnavailableError>("[mpi] {}: {}", what, text);
}

MpiSession& MpiSession::get(const MpiOptions& options) {
  static auto& session = *new MpiSession(options);
  static std::once_flag once;
  std::call_once(once,
                 [&] { session.notices_ = duplicate(session, MPI_COMM_WORLD, options, "job"); });
  return session;
}

MpiSession::MpiSession(const MpiOptions& options)
    : time_limit_(options.time_limit), membership_(options.membership) {
  int initialized = 0, finalized = 0, provided = MPI_THREAD_SINGLE;
  MPI_Initialized(&initialized);
  MPI_Finalized(&finalized);
  if (finalized) fail<FailedPreconditionError>("[mpi] the program has already called MPI_Finalize");
  if (initialized) {
    check(MPI_Query_thread(&provided), "MPI_Query_thread");
  } else {
    if (!started_by_launcher())
      fail<FailedPreconditionError>(
          "[mpi] this process was not started by mpirun: run `mpirun -n 4 PROGRAM`, or choose "
          "another backend");
    check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided), "MPI_Init_thread");
    // on_exit handlers receive the exit status; those of atexit() and static objects do not.
    on_exit([](int status, void* session) { static_cast<MpiSession*>(session)->end(status); },
            this);
  }
  if (provided < MPI_THREAD_SERIALIZED)
    fail<FailedPreconditionError>(
        "[mpi] MPI was initialised for one thread: call MPI_Init_thread with "
        "MPI_THREAD_SERIALIZED or MPI_THREAD_MULTIPLE instead of MPI_Init");
  multithreaded_ = provided == MPI_THREAD_MULTIPLE;
  check(MPI_Comm_rank(MPI_COMM_WORLD, &rank_), "MPI_Comm_rank");
  check(MPI_Comm_size(MPI_COMM_WORLD, &size_), "MPI_Comm_size");
}

void MpiSession::end(int status) noexcept {
  if (!running() || status != 0) return;
  try {
    if (meet_at_exit()) MPI_Finalize();
  } catch (const std::exception& error) {
    logging::debug("[mpi] MPI is not finalised: {}", error.what());
  }
}

bool MpiSession::meet_at_exit() {
  MPI_Request barrier = MPI_REQUEST_NULL;
  {
    const std::lock_guard lock(mutex_);
    if (notices_ == MPI_COMM_NULL || skips_finalize_) return false;
    // Informs ranks that still wait in a collective that this rank will not join it.
    for (int rank = 0; rank < size_; ++rank)
      if (rank != rank_) send(rank, {.group = kEveryGroup, .rank = rank_});
    check(MPI_Ibarrier(notices_, &barrier), "MPI_Ibarrier");
  }
  const auto deadline = Clock::now() + time_limit_;
  for (;;) {
    {
      const std::lock_guard lock(mutex_);
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

bool MpiSession::running() {
  int finalized = 0;
  MPI_Finalized(&finalized);
  return !finalized;
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
  MPI_Comm copy = MPI_COMM_NULL;
  MPI_Request request;
  {
    const std::lock_guard lock(session.mutex());
    check(MPI_Comm_idup(from, &copy, &request), "MPI_Comm_idup");
  }
  for (;;) {
    int done = 0;
    {
      const std::lock_guard lock(session.mutex());
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
      fail<DeadlineExceededError>("[mpi] not all ranks joined group '{}' within {} ms", group,
                                  options.time_limit.count());
    }
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
}

}  // namespace tandem::mpi_backend
