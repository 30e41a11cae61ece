// MPI in this process: initialisation, finalisation, the lock for its calls, and notices between
// ranks that do not depend on a group.
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

// Throws UnavailableError with MPI's message if `code` is not MPI_SUCCESS.
void check(int code, const char* what);

// A rank's message to the others of a group when it fails or leaves.
struct Notice {
  std::uint64_t group = 0;
  GroupFailure failure = GroupFailure::kNone;  // kNone: it leaves
  std::int32_t rank = 0;                       // in the group
  char text[1000] = {};
};
// In place of a group: the process is about to exit, and leaves every group. The rank is the job's.
inline constexpr std::uint64_t kEveryGroup = 0;

// One per process, never destroyed. If it has initialised MPI, it also finalises it when the
// process exits with 0 and all ranks do the same. A process that exits with an error, or knows of a
// failed rank, skips MPI_Finalize, which would block forever; mpirun ends a job whose process exits
// without it. When the program calls MPI_Finalize, MPI tells this session first: it ends what is
// under way, and no thread calls MPI from then on.
class MpiSession {
 public:
  // Initialises MPI unless it is. The first call waits for all ranks of the job. MPI_Init_thread
  // cannot be interrupted: if the membership fails meanwhile or the time limit passes, the error is
  // logged and the process ends with kExitCode.
  static MpiSession& get(const MpiOptions& options);
  static constexpr int kExitCode = 1;
  // Why MPI cannot connect this process as this rank of a job; -1: any. Empty if it can.
  static std::string obstacle(int rank, int size);
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  // The number of ranks on this host according to mpirun; at least 1.
  int local_size() const;

  // One thread at a time calls MPI: the one that holds this lock. Throws AbortedError once MPI is
  // finalised.
  [[nodiscard]] std::unique_lock<std::mutex> enter();
  // The same, but does not own the lock once MPI is finalised.
  [[nodiscard]] std::unique_lock<std::mutex> enter_if_running() noexcept;
  // Whether blocking calls may be made without having entered.
  bool multithreaded() const { return multithreaded_; }

  // The next number of the program's groups, in the order of their creation.
  int next_group() { return groups_++; }
  // Sends a notice to a rank of the job; needs no action of that rank. REQUIRES: enter().
  void send(int rank, const Notice& notice);
  // Returns and removes the notices for this rank about a group. REQUIRES: enter().
  std::vector<Notice> take_notices(std::uint64_t group);
  // The time since which a rank of the job is known to exit. REQUIRES: enter().
  std::optional<std::chrono::steady_clock::time_point> ended(int rank) const;
  // Some calls cannot be cancelled, so that MPI_Finalize would block: skips it at exit.
  void skip_finalize() { skips_finalize_ = true; }
  // A client has operations, which end before MPI does.
  class Client {
   public:
    virtual ~Client() = default;
    // REQUIRES: enter(); MPI is still running.
    virtual void end_with_mpi() noexcept = 0;
  };
  void add(Client& client);
  void remove(Client& client);

 private:
  explicit MpiSession(const MpiOptions& options);

  // MPI calls end_with_mpi() at the begin of MPI_Finalize.
  void watch_finalize();
  void end_with_mpi() noexcept;
  // Informs ranks that still wait in a collective that this rank will not join it.
  void say_goodbye();
  // Called when the process exits.
  void end(int status) noexcept;
  // Waits until every rank exits. False if one has failed or the time limit has passed.
  bool meet_at_exit();

  const std::chrono::milliseconds time_limit_;
  const std::weak_ptr<const Membership> membership_;
  std::mutex mutex_;
  MPI_Comm notices_ = MPI_COMM_NULL;
  std::map<std::uint64_t, std::vector<Notice>> received_notices_;
  std::map<int, std::chrono::steady_clock::time_point> ended_;  // by rank of the job
  struct SentNotice {
    Notice notice;
    MPI_Request request;
  };
  std::vector<std::unique_ptr<SentNotice>> sent_notices_;
  int rank_ = 0, size_ = 1, groups_ = 0;
  bool multithreaded_ = false, skips_finalize_ = false;
  bool said_goodbye_ = false, finalized_ = false;
  std::vector<Client*> clients_;
};

// Duplicates a communicator. A collective call. Throws DeadlineExceededError, which says that
// `group` did not assemble. REQUIRES: not enter().
MPI_Comm duplicate(MpiSession& session, MPI_Comm from, const MpiOptions& options,
                   const std::string& group);

}  // namespace tandem::mpi_backend
