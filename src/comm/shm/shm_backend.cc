#include "comm/shm/shm_backend.h"

#include "comm/shm/channel.h"
#include "comm/shm/collective.h"
#include "comm/shm/group.h"
#include "core/log.h"
#include "core/status.h"

namespace tandem {
namespace {

class ShmBackend final : public Backend {
 public:
  explicit ShmBackend(ShmOptions options) : group_(std::move(options)) {}

  int rank() const override { return group_.rank(); }
  int size() const override { return group_.size(); }
  const std::string& name() const override { return group_.options().name; }
  const RankNames& names() const override { return group_.names(); }
  bool supports_device_memory() const override { return false; }
  bool oversubscribed() const override { return group_.oversubscribed(); }

  std::unique_ptr<BackendOperation> start(const Collective& collective) override {
    switch (collective.signature.kind) {
      case CollectiveKind::kSend:
      case CollectiveKind::kRecv:
        return std::make_unique<shm::ShmMessage>(group_, channels_, collective);
      default: return std::make_unique<shm::ShmCollective>(group_, collectives_, collective);
    }
  }

  void check_peers(const BackendOperation& operation) override {
    const auto& waiting = static_cast<const shm::ShmOperation&>(operation);
    for (int peer = 0; peer < size(); ++peer) {
      if (peer == rank() || !waiting.waits_for(peer) || !group_.is_gone(peer)) continue;
      // It may have finished its part and left after this rank's last check.
      if (waiting.waits_for(peer)) group_.throw_gone(peer, waiting.description());
    }
  }

  bool wait_for_peers(std::chrono::microseconds limit) override {
    group_.wait_for_peers(limit);
    return true;
  }

  void abort(GroupFailure failure, const std::string& text) noexcept override {
    group_.abort(failure, text);
  }
  void check_failure() override { group_.throw_if_failed(); }

  std::shared_ptr<void> allocate(std::size_t bytes) override {
    auto memory = group_.arena().allocate(bytes);
    if (!memory && !warned_) {
      warned_ = true;
      logging::warn(
          "[shm] /dev/shm, or this process's address space, has no room for {} KiB more: "
          "collectives "
          "on this memory are copied in and out, which is slower",
          bytes >> 10);
    }
    return memory;
  }

  std::unique_ptr<Backend> split(std::span<const int> ranks, const std::string& name) override {
    ShmOptions options = group_.options();
    options.name = name;
    options.size = static_cast<int>(ranks.size());
    options.names = options.names.of(ranks);
    for (std::size_t i = 0; i < ranks.size(); ++i)
      if (ranks[i] == rank()) options.rank = static_cast<int>(i);
    return std::make_unique<ShmBackend>(std::move(options));
  }

 private:
  shm::ShmGroup group_;
  shm::CollectiveQueue collectives_{group_};
  shm::Channels channels_{group_};
  bool warned_ = false;
};

}  // namespace

std::unique_ptr<Backend> make_shm_backend(ShmOptions options) {
  if (options.size < 1 || options.rank < 0 || options.rank >= options.size)
    fail<InvalidArgumentError>("[shm] expected a rank of 0 to {}, got {}", options.size - 1,
                               options.rank);
  return std::make_unique<ShmBackend>(std::move(options));
}

}  // namespace tandem
