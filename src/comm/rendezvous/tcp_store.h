// The store of a job, behind its rendezvous server.
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
  // `check` is called from time to time by who waits in get(), and may throw: a key that a dead
  // rank was to set is not waited for. `job`: its number, of those that the server has in turn;
  // once it is over, every function throws UnavailableError.
  explicit TcpStore(ServerAddress address, std::function<void()> check = {}, int job = 0);
  ~TcpStore() override;

  void set(const std::string& key, std::string_view value) override;
  std::string get(const std::string& key, TimePoint deadline) override;
  std::int64_t add(const std::string& key, std::int64_t delta) override;
  bool remove(const std::string& key) override;

  // This rank has left the job, whose server may be gone: from here on a call tries once.
  void leave() { left_.store(true); }

 private:
  std::unique_ptr<ServerConnection> take_connection();
  // Nothing at the deadline.
  std::optional<Message> call(Message request, TimePoint deadline);
  std::optional<Message> ask(ServerConnection& connection, const Message& request,
                             TimePoint deadline) const;
  // The connection has broken: throws what the membership learns of it, where it does so soon.
  void check_for_cause() const;
  std::int64_t number_of(const Message& request);

  ServerAddress address_;
  std::function<void()> check_;
  const int job_;
  std::atomic<bool> left_ = false;
  std::mutex mutex_;
  std::vector<std::unique_ptr<ServerConnection>> idle_;  // a thread that waits has its own
};

}  // namespace tandem
