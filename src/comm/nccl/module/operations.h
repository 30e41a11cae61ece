// Collectives and messages of a group, a step at a time: first the ranks tell each other what they
// call, then the data move.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/nccl/module/group.h"
#include "comm/process/announcement.h"
#include "comm/process/backend.h"

namespace tandem::nccl_backend {

class NcclOperation : public BackendOperation {
 public:
  NcclOperation(Group& group, const Collective& collective, std::string description);

  bool advance() final;
  std::uint64_t steps() const final { return steps_; }
  // For a rank that waits for it.
  virtual void check_peers();

 protected:
  // One step; false when it has to be tried again later. REQUIRES: !done().
  virtual bool step() = 0;
  void finish() { done_ = true; }
  // Calls of NCCL on the connection, as one.
  void launch(const Connection& connection,
              const std::function<void(ncclComm_t, cudaStream_t)>& calls);
  // Whether they are through, on the GPU too.
  bool through();

  Group& group_;
  const Collective& collective_;
  const std::string description_;
  Mark enqueued_;  // on a CUDA device: what was to be computed before

 private:
  class GroupLaunch;

  std::shared_ptr<GroupLaunch> launch_;  // the last
  bool done_ = false;
  std::uint64_t steps_ = 0;
};

class NcclCollective final : public NcclOperation {
 public:
  // The `turn`-th of the group.
  NcclCollective(Group& group, const Collective& collective, std::uint64_t turn);

  std::vector<int> missing() const override;
  void check_peers() override;

 private:
  enum class Phase { kAnnounce, kCompare, kMove, kEnd };
  bool step() override;
  bool announced() const;  // by every rank
  void compare() const;
  void move();
  void move_shares(ncclComm_t comm, cudaStream_t stream);

  const std::uint64_t turn_;
  Phase phase_ = Phase::kAnnounce;
  std::shared_ptr<void> announcements_;  // this rank's, then all ranks'
  std::unique_ptr<Reachable> in_, out_;
};

class NcclMessage final : public NcclOperation {
 public:
  NcclMessage(Group& group, const Collective& collective);
  ~NcclMessage() override;

  std::vector<int> missing() const override { return {}; }

 private:
  enum class Phase { kConnect, kHeader, kCompare, kData, kEnd };
  bool step() override;
  // Throws InvalidArgumentError where the other rank sent something else.
  void compare(const Buffer& buffer) const;

  const bool sends_;
  const int peer_;
  Way& way_;
  Phase phase_ = Phase::kConnect;
  std::shared_ptr<void> header_;
  std::unique_ptr<Reachable> data_;
};

}  // namespace tandem::nccl_backend
