// The entry points of the module that libtandem loads.
#include <map>

#include "comm/gloo/module/engine.h"
#include "comm/gloo/module/mesh.h"
#include "comm/gloo/module/operation.h"
#include "comm/gloo/module/sigpipe.h"
#include "core/log.h"

namespace tandem::gloo_backend {
namespace {

class GlooBackend final : public Backend {
 public:
  GlooBackend(GroupOptions options, GlooAddress where)
      : mesh_(std::move(options), std::move(where), [this] { engine_.notify(); }) {}
  ~GlooBackend() override { engine_.stop(); }

  int rank() const override { return mesh_.rank(); }
  int size() const override { return mesh_.size(); }
  const std::string& name() const override { return mesh_.options().name; }
  const RankNames& names() const override { return mesh_.names(); }
  bool supports_device_memory() const override { return false; }
  bool oversubscribed() const override { return mesh_.oversubscribed(); }

  std::unique_ptr<BackendOperation> start(const Collective& collective) override {
    const CollectiveKind kind = collective.signature.kind;
    if (kind != CollectiveKind::kSend && kind != CollectiveKind::kRecv)
      return start_collective(collective);
    std::uint64_t& number = messages_[{collective.signature.root, kind == CollectiveKind::kSend}];
    return std::make_unique<GlooMessage>(mesh_, engine_, collective, number++);
  }

  void check_peers(const BackendOperation& operation) override {
    const auto& waiting = static_cast<const GlooOperation&>(operation);
    mesh_.check_connections([&](int peer) { return waiting.waits_for(peer); },
                            waiting.description());
  }

  void abort(GroupFailure failure, const std::string& text) noexcept override {
    try {
      mesh_.publish_failure(failure, text);
    } catch (const std::exception& error) {
      logging::warn("[gloo] could not publish the failure of group '{}' to its other ranks: {}",
                    mesh_.options().name, error.what());
    }
    engine_.stop();
    mesh_.close();
  }

  void check_failure() override { mesh_.check_failure(); }

  std::shared_ptr<void> allocate(std::size_t) override { return nullptr; }

  std::unique_ptr<Backend> split(std::span<const int> ranks, const std::string& name) override {
    return std::make_unique<GlooBackend>(mesh_.options().of(ranks, name), mesh_.where());
  }

 private:
  std::unique_ptr<BackendOperation> start_collective(const Collective& collective) {
    const NoSigpipe quiet;
    auto operation = std::make_unique<GlooCollective>(mesh_, engine_, scratch_, collective,
                                                      announcements_.take());
    announcements_.post();
    return operation;
  }

  Scratch scratch_;    // of the thread that steps operations
  GlooEngine engine_;  // outlives the connections, which notify it
  Mesh mesh_;
  PostedAnnouncements announcements_{mesh_};
  std::map<std::pair<int, bool>, std::uint64_t> messages_;  // per peer, sent or received
};

}  // namespace
}  // namespace tandem::gloo_backend

extern "C" __attribute__((visibility("default"))) tandem::Backend* tandem_make_gloo_backend(
    tandem::GroupOptions* options, tandem::GlooAddress* where) {
  return new tandem::gloo_backend::GlooBackend(std::move(*options), std::move(*where));
}
