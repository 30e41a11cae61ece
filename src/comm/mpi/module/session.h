// MPI in this process: who initialised it, who may call it, and what ranks tell each other beside
// their groups.
#pragma once

#include <mpi.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "comm/mpi/mpi_backend.h"

namespace tandem::mpi_backend {

// Throws UnavailableError with MPI's words when `code` is no success.
void check(int code, const char* what);

// What a rank tells the others of a group when it fails or leaves.
struct Notice {
  std::uint64_t group = 0;
  GroupFailure failure = GroupFailure::kNone;  // none: it leaves
  std::int32_t rank = 0;                       // in the group
  char text[1000] = {};
};
// In place of a group: the process is about to end, and with it every group. The rank is the job's.
inline constexpr std::uint64_t kEveryGroup = 0;

// One a process, and never destroyed. Where it has initialised MPI it also finalises it, when the
// process exits with 0 and all ranks have come that far. A process that exits with an error, or
// finds that another rank has failed, leaves MPI as it is: MPI_Finalize would wait for ever, and
// mpirun ends a job whose process ends without it.
class Session {
 public:
  // Initialises MPI unless it is. The first call waits for all ranks of the job, without a limit:
  // it is mpirun that knows when one will not come.
  static Session& get(const MpiOptions& options);
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  // Ranks on this host, as far as mpirun tells; at least 1.
  int local_size() const;

  // MPI is called by one thread at a time.
  std::mutex& mutex() { return mutex_; }
  // Whether calls that wait may be made without it.
  bool multithreaded() const { return multithreaded_; }

  // Those of a program's groups, in the order in which they are made.
  int next_group() { return groups_++; }
  // To a rank of the job, whatever it does. REQUIRES: mutex().
  void tell(int rank, const Notice& notice);
  // What has been told to this rank about a group. REQUIRES: mutex().
  std::vector<Notice> heard(std::uint64_t group);
  // Since when it is known that the process of a rank of the job ends. REQUIRES: mutex().
  std::optional<std::chrono::steady_clock::time_point> ended(int rank) const;
  // There are calls that MPI cannot end: it must not wait for them when the process ends.
  void abandon() { abandoned_ = true; }
  // Whether communicators can still be freed.
  static bool running();

 private:
  explicit Session(const MpiOptions& options);

  // The process exits.
  void end(int status) noexcept;
  // Waits until every rank exits. False where one has failed, or does not come within the limit.
  bool meet_at_exit();

  const std::chrono::milliseconds time_limit_;
  const std::weak_ptr<const Membership> membership_;
  std::mutex mutex_;
  MPI_Comm notices_ = MPI_COMM_NULL;
  std::map<std::uint64_t, std::vector<Notice>> heard_;
  std::map<int, std::chrono::steady_clock::time_point> ended_;  // by rank of the job
  struct Told {
    Notice notice;
    MPI_Request request;
  };
  std::vector<std::unique_ptr<Told>> told_;
  int rank_ = 0, size_ = 1, groups_ = 0;
  bool multithreaded_ = false, abandoned_ = false;
};

// Duplicates a communicator. Every rank of it must call this; throws DeadlineExceededError, saying
// that `group` did not assemble. REQUIRES: not mutex().
MPI_Comm duplicate(Session& session, MPI_Comm from, const MpiOptions& options,
                   const std::string& group);

}  // namespace tandem::mpi_backend
