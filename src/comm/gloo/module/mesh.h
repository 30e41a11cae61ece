// A group's connections: one between each pair of ranks.
#pragma once

#include <gloo/transport/unbound_buffer.h>

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/gloo/gloo_backend.h"
#include "comm/gloo/module/connected_context.h"
#include "comm/gloo/module/device.h"
#include "comm/gloo/module/wiring.h"
#include "tandem/errors.h"

namespace tandem::gloo_backend {

// Thread-safe after construction.
class Mesh {
 public:
  // Waits until every rank has created its own. Gloo's thread calls `on_event` whenever a
  // connection has read, written or broken; it must not throw or block.
  Mesh(GroupOptions options, GlooAddress where, std::function<void()> on_event);
  // Announces to the peers that this rank leaves, and waits, at most half a minute, until they have
  // received what it has sent.
  ~Mesh();

  const GroupOptions& options() const { return options_; }
  const GlooAddress& where() const { return where_; }  // complete
  int rank() const { return options_.rank; }
  int size() const { return options_.size; }
  const RankNames& names() const { return options_.names; }
  // Whether the ranks on this host outnumber its cores, at two busy threads per rank.
  bool oversubscribed() const { return oversubscribed_; }
  gloo::transport::Context& context() const { return *context_; }

  // Throws UnavailableError if this process has closed a connection itself; otherwise the error
  // that the group published in the store; otherwise the first failure according to the membership;
  // otherwise AbortedError: `peer` left or its connection broke while this rank was waiting for
  // `what`.
  [[noreturn]] void throw_broken(int peer, const std::string& what,
                                 const std::string& reason) const;
  // Throws such an error if the connection to a peer is broken, unless this rank does not need it
  // and the peer left in good order, or a moment ago: it may have died after it had done its part.
  void check_connections(const std::function<bool(int peer)>& needs,
                         const std::string& waiting_for);

  // Publishes the reason for ranks that find connections broken. Connections stay open.
  void publish_failure(GroupFailure failure, const std::string& text) const;
  // Throws the error that a rank has published, if the store has one.
  void check_failure() const;
  // Closes the connections; their memory is no longer read or written. REQUIRES: on_event() does
  // nothing any more.
  void close() noexcept;

 private:
  void join(std::optional<Wiring>& wiring);
  // Publishes the error, so that ranks that are still joining do not wait for this one.
  void publish_failed_start(const Error& error) const noexcept;
  std::string key(std::string_view what) const;
  std::string key(std::string_view what, int rank) const;
  void check_connection(int peer, const std::function<bool(int peer)>& needs,
                        const std::string& waiting_for);
  void wait_until_received() const noexcept;
  // Throws UnavailableError if other code of this process has closed a descriptor of the group.
  void expect_own_connections() const;
  bool ask_for_hosts() const;  // whether all ranks are on one
  void choose_address();
  // The address of this rank's parent in the tree over which addresses are sent; none for rank 0.
  std::optional<ListenAddress> wait_for_parent_address() const;
  // Connects this rank to all others.
  void connect(Wiring& wiring);
  void post_sentinels();
  std::string describe_missing(const std::vector<int>& missing,
                               std::chrono::milliseconds time) const;
  // The ranks that have not begun to join.
  std::vector<int> absent() const;
  // Throws at the time limit. `unconnected`: the missing ranks, if all ranks' addresses are known.
  [[noreturn]] void fail_to_assemble(std::vector<int> unconnected) const;
  std::string find(const std::string& key) const;  // empty if the key is missing or the store fails

  const GroupOptions options_;
  GlooAddress where_;
  std::function<void()> on_event_;
  std::shared_ptr<GlooDevice> device_;
  std::shared_ptr<ConnectedContext> context_;
  std::vector<ListenAddress> peers_;
  // Receives that are never matched, by rank; they fail when a connection breaks. Null: the
  // connection was broken earlier.
  std::vector<std::unique_ptr<gloo::transport::UnboundBuffer>> sentinels_;
  std::vector<bool> left_;  // in good order, as far as this rank has checked
  std::map<int, std::chrono::steady_clock::time_point> broken_;  // since when this rank knows it
  char nothing_ = 0;
  bool oversubscribed_ = false;
};

}  // namespace tandem::gloo_backend
