// A client of the store in a job's rendezvous server.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "comm/rendezvous/server_connection.h"
#include "comm/store.h"

namespace tandem {

class TcpStore final : public Store {
 public:
  // get() calls `check` repeatedly while it waits. `check` may throw, for instance because the rank
  // that should set the key has died. `job` is the number among successive jobs of the server; once
  // that job is over, every function throws UnavailableError.
  explicit TcpStore(ServerAddress address, std::function<void()> check = {}, int job = 0);
  ~TcpStore() override;

  void set(const std::string& key, std::string_view value) override;
  std::string get(const std::string& key, TimePoint deadline) override;
  std::int64_t add(const std::string& key, std::int64_t delta) override;
  // Does not wait for the server's answer, since over high latency each takes long.
  void remove(const std::string& key) override;

  // This rank has left the job, so the server may be gone: from now on a call makes one attempt.
  void shut_down() { shut_down_.store(true); }

 private:
  struct StoreConnection {
    ServerConnection server;
    int unread = 0;  // answers that will come before that of the next request
  };

  std::unique_ptr<StoreConnection> take_connection();
  // Calls use(connection, request). Its result: empty if the connection cannot be used again.
  template <class Use>
  std::optional<WireMessage> with_connection(WireMessage request, const Use& use);
  // Empty at the deadline.
  std::optional<WireMessage> call(WireMessage request, TimePoint deadline);
  std::optional<WireMessage> ask(StoreConnection& connection, const WireMessage& request,
                                 TimePoint deadline) const;
  // Called after a connection broke: throws the membership's error if it reports one soon.
  void check_for_cause() const;
  std::int64_t number_of(const WireMessage& request);

  ServerAddress address_;
  std::function<void()> check_;
  const int job_;
  std::atomic<bool> shut_down_ = false;
  std::mutex mutex_;
  std::vector<std::unique_ptr<StoreConnection>> idle_;  // one connection per waiting thread
};

}  // namespace tandem
