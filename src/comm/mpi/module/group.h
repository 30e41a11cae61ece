// A group's communicators, and its collectives and messages under way.
#pragma once

#include <mpi.h>

#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/mpi/module/session.h"
#include "comm/process/announcement.h"
#include "comm/process/contiguous.h"

namespace tandem::mpi_backend {

class MpiCollective;

class Group {
 public:
  // All of the job's ranks.
  explicit Group(MpiOptions options);
  // Some of another group's, in this order; called by those alone.
  Group(Group& parent, std::span<const int> ranks, const std::string& name);
  // Says goodbye.
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  const std::string& name() const { return name_; }
  const RankNames& names() const { return names_; }
  Session& session() const { return session_; }
  MPI_Comm messages() const { return messages_; }  // between two ranks: announcements too
  MPI_Comm data() const { return data_; }          // of all

  // Throws what another rank has failed with. REQUIRES: the session's mutex.
  void look_for_failure();
  // Whether the rank has been known to have left for a while: what it has sent before is here.
  bool has_left(int rank) const;
  void fail(GroupFailure failure, const std::string& text) noexcept;

 private:
  void set_up();
  void assemble(Group& parent, std::span<const int> ranks);
  void tell_all(GroupFailure failure, const std::string& text);

  MpiOptions options_;
  Session& session_;
  std::string name_;
  std::uint64_t id_ = 0;
  int rank_ = 0, size_ = 1;
  std::vector<int> world_;  // the job's rank of each rank
  RankNames names_;         // the same
  MPI_Comm messages_ = MPI_COMM_NULL, data_ = MPI_COMM_NULL;
  std::vector<std::optional<std::chrono::steady_clock::time_point>> left_;  // by rank: since when
  bool failed_ = false;
};

// Tags of messages().
constexpr int kAnnouncementTag = 1;
constexpr int kSplitTags = 1 << 10;    // and so many more
constexpr int kMessageTags = 1 << 12;  // and all above

}  // namespace tandem::mpi_backend
