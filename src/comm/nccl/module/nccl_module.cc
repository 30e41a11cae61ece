// The entry points of the module that libtandem loads.
#include "comm/checked_communicator.h"
#include "comm/nccl/module/group.h"
#include "comm/nccl/module/operations.h"
#include "core/status.h"

namespace tandem::nccl_backend {
namespace {

class NcclBackend final : public Backend {
 public:
  NcclBackend(GroupOptions options, NcclDevice where) : group_(std::move(options), where) {}

  int rank() const override { return group_.rank(); }
  int size() const override { return group_.size(); }
  const std::string& name() const override { return group_.options().name; }
  const RankNames& names() const override { return group_.names(); }
  bool supports_device_memory() const override { return group_.on_cuda(); }
  bool oversubscribed() const override { return false; }

  void check(const CheckedCall& call) const override {
    if (call.op == ReduceOp::kTreeSum)
      throw UnimplementedError(
          "[all_reduce] a tree sum over NCCL between processes, whose order of sums is its own: "
          "use the backend shm, gloo or mpi");
  }
  std::unique_ptr<BackendOperation> start(const Collective& collective) override {
    use_gpu(group_.gpu());
    const CollectiveKind kind = collective.signature.kind;
    if (kind == CollectiveKind::kSend || kind == CollectiveKind::kRecv)
      return std::make_unique<NcclMessage>(group_, collective);
    return std::make_unique<NcclCollective>(group_, collective, next_turn_++);
  }

  void check_peers(const BackendOperation& operation) override {
    // The operation is this backend's own, and no other object uses it.
    const_cast<NcclOperation&>(static_cast<const NcclOperation&>(operation)).check_peers();
  }

  void abort(GroupFailure failure, const std::string& text) noexcept override {
    group_.publish_failure(failure, text);
    group_.abort(failure, text);
  }
  void check_failure() override { group_.check_published_failure(); }

  std::shared_ptr<void> allocate(std::size_t bytes) override {
    use_gpu(group_.gpu());
    return group_.pool().take(bytes);
  }

  std::unique_ptr<Backend> split(std::span<const int> ranks, const std::string& name) override {
    return std::make_unique<NcclBackend>(group_.options().of(ranks, name), group_.where());
  }

 private:
  NcclGroup group_;
  std::uint64_t next_turn_ = 0;
};

}  // namespace
}  // namespace tandem::nccl_backend

extern "C" __attribute__((visibility("default"))) tandem::Backend* tandem_make_nccl_backend(
    tandem::GroupOptions* options, tandem::NcclDevice* where) {
  return new tandem::nccl_backend::NcclBackend(std::move(*options), *where);
}
