// A group's connections: every rank with every other.
#pragma once

#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/gloo/gloo_backend.h"
#include "comm/gloo/module/connected_context.h"
#include "comm/gloo/module/wiring.h"
#include "tandem/errors.h"

namespace tandem::gloo_backend {

// Thread-safe once it is made.
class Mesh {
 public:
  // Waits until every rank has made its own. `on_event` is called by Gloo's thread whenever a
  // connection has read, written or broken; it must not throw or block.
  Mesh(GlooOptions options, std::function<void()> on_event);
  // Says goodbye: a peer that waits for this rank learns that it has left.
  ~Mesh();

  const GlooOptions& options() const { return options_; }
  int rank() const { return options_.rank; }
  int size() const { return options_.size; }
  const RankNames& names() const { return options_.names; }
  // The threads of the ranks here, two a rank that work at a time, outnumber the cores.
  bool crowded() const { return crowded_; }
  gloo::transport::Context& context() const { return *context_; }

  // Throws what the group failed with, as far as the store tells; else who failed first, as the
  // membership has it; else AbortedError, naming `peer`, which left or whose connection broke while
  // this rank was waiting for `what`.
  [[noreturn]] void throw_broken(int peer, const std::string& what,
                                 const std::string& reason) const;
  // Throws so when the connection to a peer is broken, unless that has left in good order and this
  // rank does not need it.
  void check_connections(const std::function<bool(int peer)>& needs,
                         const std::string& waiting_for);

  // Tells the ranks that find connections broken why. They still stand.
  void publish_failure(GroupFailure failure, const std::string& text) const;
  // Throws what a rank has published, as far as the store tells.
  void check_failure() const;
  // Closes the connections. Nothing is read from them or written to them any more. REQUIRES:
  // on_event() does nothing any more.
  void close() noexcept;

 private:
  void join(std::optional<Wiring>& wiring);
  // So that the ranks which still join do not wait for this one.
  void tell_of_failure(const Error& error) const noexcept;
  std::string key(std::string_view what) const;
  std::string key(std::string_view what, int rank) const;
  void check_connection(int peer, const std::function<bool(int peer)>& needs,
                        const std::string& waiting_for);
  void choose_address();
  // Of this rank's parent in the tree along which addresses go; none for rank 0.
  std::optional<Door> wait_for_parents_door() const;
  // Connects this rank with all others.
  void connect(Wiring& wiring);
  void post_sentinels();
  std::string describe_missing(const std::vector<int>& missing) const;
  // At the time limit. `unconnected`: the ranks that are missing where all have told their address.
  [[noreturn]] void fail_to_assemble(std::vector<int> unconnected) const;
  std::string find(const std::string& key) const;  // empty: not there, or nobody tells

  GlooOptions options_;
  std::function<void()> on_event_;
  std::shared_ptr<gloo::transport::tcp::Device> device_;
  std::shared_ptr<ConnectedContext> context_;
  std::vector<Door> peers_;
  // Receives that nobody ever serves, by rank: they tell of broken connections. Null: that broke
  // before.
  std::vector<std::unique_ptr<gloo::transport::UnboundBuffer>> sentinels_;
  std::vector<bool> left_;  // in good order, as far as this rank has looked
  char nothing_ = 0;
  bool crowded_ = false;
};

}  // namespace tandem::gloo_backend
