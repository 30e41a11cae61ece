// A group's MPI communicators and their failure state.
#pragma once

#include <mpi.h>

#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/mpi/module/session.h"

namespace tandem::mpi_backend {

class MpiCollective;

class MpiGroup {
 public:
  // All of the job's ranks.
  explicit MpiGroup(MpiOptions options);
  // Some of another group's ranks, in this order; only those ranks call it.
  MpiGroup(MpiGroup& parent, std::span<const int> ranks, const std::string& name);
  // Announces that this rank leaves.
  ~MpiGroup();
  MpiGroup(const MpiGroup&) = delete;
  MpiGroup& operator=(const MpiGroup&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  const std::string& name() const { return name_; }
  const RankNames& names() const { return names_; }
  MpiSession& session() const { return session_; }
  MPI_Comm messages() const { return messages_; }  // between two ranks, with announcements
  MPI_Comm data() const { return data_; }          // of collectives

  // Throws the error that another rank has reported. REQUIRES: the session is entered.
  void look_for_failure();
  // Whether the rank is known to have left for so long that its earlier messages have arrived.
  bool has_left(int rank) const;
  // REQUIRES: the session is entered.
  void abort(GroupFailure failure, const std::string& text) noexcept;

 private:
  void set_up();
  void assemble(MpiGroup& parent, std::span<const int> ranks);
  void notify_all(GroupFailure failure, const std::string& text);

  MpiOptions options_;
  MpiSession& session_;
  std::string name_;
  std::uint64_t id_ = 0;
  int rank_ = 0, size_ = 1;
  std::vector<int> world_;  // the job's rank of each rank
  RankNames names_;         // the same, for messages
  MPI_Comm messages_ = MPI_COMM_NULL, data_ = MPI_COMM_NULL;
  std::vector<std::optional<std::chrono::steady_clock::time_point>> left_;  // by rank: since when
  bool failed_ = false;
};

// Tags of messages().
constexpr int kAnnouncementTag = 1;
constexpr int kSplitTags = 1 << 10;    // this tag and as many more
constexpr int kMessageTags = 1 << 12;  // this tag and all above

}  // namespace tandem::mpi_backend
