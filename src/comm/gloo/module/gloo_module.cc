// What libtandem loads.
#include <algorithm>
#include <cstring>
#include <deque>
#include <map>

#include "comm/gloo/module/mesh.h"
#include "comm/gloo/module/moves.h"
#include "comm/gloo/module/sigpipe.h"
#include "comm/gloo/module/worker.h"
#include "comm/process/announcement.h"
#include "core/log.h"
#include "core/status.h"

namespace tandem::gloo_backend {
namespace {

// Done by a worker's thread; advance() looks whether it is.
class GlooOperation : public BackendOperation {
 public:
  GlooOperation(Worker& worker, const Collective& collective, std::string description)
      : collective_(collective), worker_(worker), task_(std::make_shared<Task>()) {
    task_->description = std::move(description);
  }
  bool advance() override {
    if (!task_->has_ended()) return false;
    if (task_->error) std::rethrow_exception(task_->error);
    return true;
  }
  bool sleep(std::chrono::microseconds limit) const override {
    task_->wait(limit);
    return true;
  }
  std::uint64_t steps() const override { return task_->steps.load(std::memory_order_relaxed); }

  const std::string& description() const { return task_->description; }
  int waits_for() const { return worker_.waits_for(); }

 protected:
  void begin(std::function<void(Line&)> body) {
    task_->body = std::move(body);
    worker_.add(task_);
  }
  // What the thread works on is about to go.
  void end() {
    if (!task_->has_ended()) worker_.stop();
  }

  const Collective& collective_;
  Worker& worker_;
  const std::shared_ptr<Task> task_;
};

class GlooCollective final : public GlooOperation {
 public:
  // Those that exist, in order.
  using List = std::deque<const GlooCollective*>;

  GlooCollective(const Mesh& mesh, Worker& worker, Scratch& scratch, List& all,
                 const Collective& collective)
      : GlooOperation(worker, collective,
                      fmt::format("collective {} ({})", collective.sequence,
                                  describe(collective.signature, collective.label, mesh.names()))),
        mesh_(mesh),
        all_(all) {
    all_.push_back(this);
    begin([this, &scratch](Line& line) {
      Moves moves(line, collective_, mesh_, scratch, task_->steps);
      announce(line);
      moves.begin();
      wait_for_announcements(line);
      std::vector<Announcement> all(small_.size());
      for (std::size_t rank = 0; rank < all.size(); ++rank)
        std::memcpy(&all[rank], messages_.get() + rank * kMessageBytes, sizeof(Announcement));
      check_announcements(collective_, all, mesh_.names());
      moves.run(small_);
    });
  }

  ~GlooCollective() override {
    end();
    std::erase(all_, this);
  }

  // Only the end of a group wants to know: the thread, which waits for one rank after the other,
  // has to stop before one can look at all of them. It may wait for an earlier collective, which
  // whoever is missing there has not gone past.
  std::vector<int> missing() const override {
    worker_.stop();
    std::vector<int> ranks;
    for (const GlooCollective* collective : all_) {
      ranks = collective->missing_here();
      if (!ranks.empty() || collective == this) break;
    }
    return ranks;
  }

 private:
  static constexpr std::size_t kMessageBytes = sizeof(Announcement) + kSmallBytes;

  // Of a peer's message only as much arrives as it has sent.
  void announce(Line& line) {
    const std::uint64_t slot = collective_slot(collective_.sequence, 0);
    const int size = mesh_.size(), me = mesh_.rank();
    messages_ =
        std::make_unique_for_overwrite<std::byte[]>(static_cast<std::size_t>(size) * kMessageBytes);
    const auto message = [&](int rank) {
      return messages_.get() + static_cast<std::size_t>(rank) * kMessageBytes;
    };
    for (int rank = 0; rank < size; ++rank) small_.push_back(message(rank) + sizeof(Announcement));
    for (int peer = 0; peer < size; ++peer)
      if (peer != me)
        received_.push_back(
            std::make_unique<Post>(line.recv(peer, slot, message(peer), kMessageBytes)));
    const std::size_t bytes = write_message(message(me));
    for (int peer = 0; peer < size; ++peer)
      if (peer != me) sent_.push_back(line.send(peer, slot, message(me), bytes));
  }

  void wait_for_announcements(Line& line) {
    for (std::unique_ptr<Post>& post : received_) {
      line.wait(*post);
      post.reset();
    }
    for (Post& post : sent_) line.wait(post);
    task_->steps.fetch_add(1, std::memory_order_relaxed);
  }

  std::size_t write_message(std::byte* to) const {
    const Announcement mine = tandem::announce(collective_);
    std::memcpy(to, &mine, sizeof(mine));
    std::size_t bytes = sizeof(mine);
    if (bytes_with_announcement(collective_) == 0) return bytes;
    for (const Buffer& buffer : collective_.in) {
      if (buffer.count > 0) std::memcpy(to + bytes, buffer.data, buffer.bytes());
      bytes += buffer.bytes();
    }
    return bytes;
  }

  std::vector<int> missing_here() const {
    std::vector<Post*> open;
    for (const std::unique_ptr<Post>& post : received_)
      if (post) open.push_back(post.get());
    const std::vector<bool> arrived = have_arrived(open);
    std::vector<int> ranks;
    for (std::size_t i = 0; i < open.size(); ++i)
      if (!arrived[i]) ranks.push_back(open[i]->peer);
    return ranks;
  }

  const Mesh& mesh_;
  List& all_;
  std::unique_ptr<std::byte[]> messages_;        // announcements and what came with them, by rank
  std::vector<const std::byte*> small_;          // what came with them
  std::vector<std::unique_ptr<Post>> received_;  // null: has arrived
  std::vector<Post> sent_;
};

// Says first what it is, so that who expects something else can tell.
class GlooMessage final : public GlooOperation {
 public:
  GlooMessage(const Mesh& mesh, Worker& worker, const Collective& collective, std::uint64_t number)
      : GlooOperation(worker, collective,
                      describe(collective.signature, collective.label, mesh.names())),
        mesh_(mesh) {
    const std::uint64_t slot = kMessageSlots + 2 * number;
    if (collective.signature.kind == CollectiveKind::kSend)
      begin([this, slot](Line& line) { send(line, slot); });
    else
      begin([this, slot](Line& line) { receive(line, slot); });
  }
  ~GlooMessage() override { end(); }
  std::vector<int> missing() const override { return {}; }

 private:
  struct Header {
    std::int64_t count = 0;
    std::int64_t dtype = 0;
  };

  void send(Line& line, std::uint64_t slot) {
    const Buffer& buffer = collective_.in.front();
    const int peer = collective_.signature.root;
    const Header header = {buffer.count, static_cast<std::int64_t>(buffer.dtype)};
    Post first = line.send(peer, slot, &header, sizeof(header));
    line.wait(first);
    if (buffer.count == 0) return;
    Post data = line.send(peer, slot + 1, buffer.data, buffer.bytes());
    line.wait(data);
  }

  void receive(Line& line, std::uint64_t slot) {
    const Buffer& buffer = collective_.out.front();
    const int peer = collective_.signature.root;
    Header header;
    Post first = line.recv(peer, slot, &header, sizeof(header));
    line.wait(first);
    if (header.count != buffer.count || header.dtype != static_cast<std::int64_t>(buffer.dtype))
      fail<InvalidArgumentError>("[recv] rank {} sent {} {}, rank {} expected {} {}",
                                 mesh_.names()[peer], header.count,
                                 name_of(static_cast<DType>(header.dtype)),
                                 mesh_.names()[mesh_.rank()], buffer.count, name_of(buffer.dtype));
    if (buffer.count == 0) return;
    Post data = line.recv(peer, slot + 1, buffer.data, buffer.bytes());
    line.wait(data);
  }

  const Mesh& mesh_;
};

class GlooBackend final : public Backend {
 public:
  explicit GlooBackend(GlooOptions options) : mesh_(std::move(options)), collectives_(mesh_) {}

  int rank() const override { return mesh_.rank(); }
  int size() const override { return mesh_.size(); }
  const std::string& name() const override { return mesh_.options().name; }
  const RankNames& names() const override { return mesh_.names(); }
  bool takes_device_memory() const override { return false; }
  bool crowded() const override { return mesh_.crowded(); }

  std::unique_ptr<BackendOperation> start(const Collective& collective) override {
    const CollectiveKind kind = collective.signature.kind;
    if (kind != CollectiveKind::kSend && kind != CollectiveKind::kRecv)
      return std::make_unique<GlooCollective>(mesh_, collectives_, scratch_, all_, collective);
    Channel& channel = channels_[{collective.signature.root, kind == CollectiveKind::kSend}];
    if (!channel.worker) channel.worker = std::make_unique<Worker>(mesh_);
    return std::make_unique<GlooMessage>(mesh_, *channel.worker, collective, channel.messages++);
  }

  void check_peers(const BackendOperation& operation) override {
    const auto& waiting = static_cast<const GlooOperation&>(operation);
    mesh_.check_connections(waiting.waits_for(), waiting.description());
  }

  void fail_group(GroupFailure failure, const std::string& text) noexcept override {
    try {
      mesh_.publish_failure(failure, text);
    } catch (const std::exception& error) {
      logging::warn("[gloo] the other ranks of group '{}' will not learn why it ended: {}",
                    mesh_.options().name, error.what());
    }
    collectives_.stop();
    for (auto& [peer, channel] : channels_) channel.worker->stop();
    mesh_.close();
  }

  void check_failure() override { mesh_.check_failure(); }

  std::shared_ptr<void> allocate(std::size_t) override { return nullptr; }

  std::unique_ptr<Backend> split(std::span<const int> ranks, const std::string& name) override {
    GlooOptions options = mesh_.options();
    options.name = name;
    options.size = static_cast<int>(ranks.size());
    options.names = options.names.of(ranks);
    options.rank = static_cast<int>(std::find(ranks.begin(), ranks.end(), rank()) - ranks.begin());
    return std::make_unique<GlooBackend>(std::move(options));
  }

 private:
  // Messages to or from a peer, which come in order but wait for nobody else's.
  struct Channel {
    std::unique_ptr<Worker> worker;
    std::uint64_t messages = 0;
  };

  Mesh mesh_;
  Scratch scratch_;  // of the thread of collectives_
  GlooCollective::List all_;
  Worker collectives_;
  std::map<std::pair<int, bool>, Channel> channels_;
};

}  // namespace
}  // namespace tandem::gloo_backend

extern "C" __attribute__((visibility("default"))) tandem::Backend* tandem_make_gloo_backend(
    tandem::GlooOptions* options) {
  return new tandem::gloo_backend::GlooBackend(std::move(*options));
}
