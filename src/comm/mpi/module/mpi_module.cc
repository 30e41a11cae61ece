// The entry points of the module that libtandem loads.
#include <unistd.h>

#include <map>

#include "comm/mpi/module/collective.h"
#include "core/status.h"

namespace tandem::mpi_backend {
namespace {

class MpiBackend final : public Backend {
 public:
  explicit MpiBackend(MpiOptions options) : group_(std::move(options)) {}
  MpiBackend(MpiGroup& parent, std::span<const int> ranks, const std::string& name)
      : group_(parent, ranks, name) {}

  int rank() const override { return group_.rank(); }
  int size() const override { return group_.size(); }
  const std::string& name() const override { return group_.name(); }
  const RankNames& names() const override { return group_.names(); }
  bool supports_device_memory() const override { return false; }
  // If the program has initialised MPI for one thread at a time, it may be calling MPI itself.
  bool allows_any_thread() const override { return group_.session().multithreaded(); }
  bool oversubscribed() const override { return oversubscribed_; }

  std::unique_ptr<BackendOperation> start(const Collective& collective) override {
    const CollectiveKind kind = collective.signature.kind;
    if (kind != CollectiveKind::kSend && kind != CollectiveKind::kRecv)
      return std::make_unique<MpiCollective>(group_, queue_, collective);
    std::uint64_t& number = messages_[{collective.signature.root, kind == CollectiveKind::kSend}];
    return std::make_unique<MpiMessage>(group_, queue_, collective, number++);
  }

  void check_peers(const BackendOperation& operation) override {
    const auto& waiting = static_cast<const MpiOperation&>(operation);
    const auto lock = group_.session().enter();
    group_.look_for_failure();
    for (int peer = 0; peer < size(); ++peer)
      if (peer != rank() && group_.has_left(peer) && waiting.waits_for(peer))
        fail<AbortedError>("rank {} has left the group; rank {} still waits for it: {}",
                           names()[peer], names()[rank()], waiting.description());
  }

  void abort(GroupFailure failure, const std::string& text) noexcept override {
    const auto lock = group_.session().enter_if_running();
    if (!lock) return;
    group_.abort(failure, text);
    queue_.cancel();
  }

  std::shared_ptr<void> allocate(std::size_t) override { return nullptr; }

  std::unique_ptr<Backend> split(std::span<const int> ranks, const std::string& name) override {
    return std::make_unique<MpiBackend>(group_, ranks, name);
  }

 private:
  MpiGroup group_;
  MpiQueue queue_{group_};
  // Cached, because the system reads a file for it.
  const bool oversubscribed_ = group_.session().local_size() > sysconf(_SC_NPROCESSORS_ONLN);
  std::map<std::pair<int, bool>, std::uint64_t> messages_;  // to or from each peer
};

}  // namespace
}  // namespace tandem::mpi_backend

extern "C" __attribute__((visibility("default"))) tandem::Backend* tandem_make_mpi_backend(
    tandem::MpiOptions* options) {
  return new tandem::mpi_backend::MpiBackend(std::move(*options));
}

extern "C" __attribute__((visibility("default"))) void tandem_mpi_obstacle(int rank, int size,
                                                                           std::string* text) {
  *text = tandem::mpi_backend::MpiSession::obstacle(rank, size);
}
