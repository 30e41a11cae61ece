// A group's collectives and messages, as sequences of steps: first the ranks exchange their calls,
// then the data moves.
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
  NcclOperation(NcclGroup& group, const Collective& collective, std::string description);

  bool advance() final;
  std::uint64_t steps() const final { return steps_; }
  // Called by a rank that waits for it.
  virtual void check_peers();

 protected:
  // One step. False if it must be retried later. REQUIRES: !done().
  virtual bool step() = 0;
  void finish() { done_ = true; }
  // Makes NCCL calls on the connection, as one group.
  void launch(const NcclConnection& connection,
              const std::function<void(ncclComm_t, cudaStream_t)>& calls);
  // Whether they have completed, also on the GPU.
  bool through();

  NcclGroup& group_;
  const Collective& collective_;
  const std::string description_;
  CudaEvent enqueued_;  // CUDA devices: recorded after the computation of the inputs

 private:
  class GroupLaunch;

  std::shared_ptr<GroupLaunch> launch_;  // the last one
  bool done_ = false;
  std::uint64_t steps_ = 0;
};

class NcclCollective final : public NcclOperation {
 public:
  // `turn`: its number among the group's collectives.
  NcclCollective(NcclGroup& group, const Collective& collective, std::uint64_t turn);

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
  std::unique_ptr<GpuBuffers> in_, out_;
};

class NcclMessage final : public NcclOperation {
 public:
  NcclMessage(NcclGroup& group, const Collective& collective);
  ~NcclMessage() override;

  std::vector<int> missing() const override { return {}; }

 private:
  enum class Phase { kConnect, kHeader, kCompare, kData, kEnd };
  bool step() override;
  // Throws InvalidArgumentError if the other rank sent something else.
  void compare(const Buffer& buffer) const;

  const bool sends_;
  const int peer_;
  MessageConnection& messages_;
  Phase phase_ = Phase::kConnect;
  std::shared_ptr<void> header_;
  std::unique_ptr<GpuBuffers> data_;
};

}  // namespace tandem::nccl_backend
