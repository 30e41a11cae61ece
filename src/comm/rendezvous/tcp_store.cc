#include "comm/rendezvous/tcp_store.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "comm/rendezvous/key_values.h"
#include "core/status.h"

namespace tandem {
namespace {

// for requests that do not wait for another rank
constexpr auto kRequestLimit = std::chrono::seconds(30);
constexpr auto kCauseLimit = std::chrono::milliseconds(500);
constexpr auto kCheckInterval = std::chrono::milliseconds(100);
constexpr auto kRetry = std::chrono::milliseconds(20);

}  // namespace

TcpStore::TcpStore(ServerAddress address, std::function<void()> check, int job)
    : address_(std::move(address)), check_(std::move(check)), job_(job) {}

TcpStore::~TcpStore() = default;

void TcpStore::set(const std::string& key, std::string_view value) {
  number_of({.type = MessageType::kSet, .key = key, .value = std::string(value)});
}

std::string TcpStore::get(const std::string& key, TimePoint deadline) {
  const bool waits = deadline > Clock::now();
  const auto answer = call({.type = MessageType::kGet, .number = waits ? 0 : 1, .key = key},
                           waits ? deadline : Clock::now() + kRequestLimit);
  if (!answer || answer->type != MessageType::kValue)
    fail<DeadlineExceededError>("{}", not_set_in_time(key));
  return answer->value;
}

std::int64_t TcpStore::add(const std::string& key, std::int64_t delta) {
  return number_of({.type = MessageType::kAdd, .number = delta, .key = key});
}

void TcpStore::remove(const std::string& key) {
  WireMessage request = {.type = MessageType::kRemove, .key = key};
  with_connection(std::move(request), [](StoreConnection& connection, const WireMessage& sent) {
    connection.server.send(sent, Clock::now() + kRequestLimit);
    ++connection.unread;
    return std::optional<WireMessage>(WireMessage());
  });
}

std::int64_t TcpStore::number_of(const WireMessage& request) {
  const auto answer = call(request, Clock::now() + kRequestLimit);
  if (!answer)
    fail<UnavailableError>("[Store] the job's rendezvous at {} does not answer",
                           to_string(address_.endpoint));
  return answer->number;
}

std::unique_ptr<TcpStore::StoreConnection> TcpStore::take_connection() {
  {
    const std::scoped_lock lock(mutex_);
    if (!idle_.empty()) {
      auto connection = std::move(idle_.back());
      idle_.pop_back();
      return connection;
    }
  }
  // Several attempts, because a flooded server may drop a connection before its handshake.
  for (const TimePoint end = Clock::now() + kRequestLimit;; std::this_thread::sleep_for(kRetry)) {
    if (check_) check_();  // if the network is down, only this ends the loop
    try {
      return std::make_unique<StoreConnection>(
          StoreConnection{.server = ServerConnection(address_, end)});
    } catch (const UnavailableError&) {
      if (!check_ || shut_down_ || Clock::now() >= end) throw;
    }
  }
}

template <class Use>
std::optional<WireMessage> TcpStore::with_connection(WireMessage request, const Use& use) {
  request.rank = job_;
  std::unique_ptr<StoreConnection> connection;
  std::optional<WireMessage> answer;
  try {
    connection = take_connection();
    answer = use(*connection, request);
  } catch (const UnavailableError&) {
    check_for_cause();
    throw;
  }
  if (!answer) return std::nullopt;  // the request is cancelled with its connection
  const std::scoped_lock lock(mutex_);
  idle_.push_back(std::move(connection));
  return answer;
}

std::optional<WireMessage> TcpStore::call(WireMessage request, TimePoint deadline) {
  auto answer =
      with_connection(std::move(request), [&](StoreConnection& connection, const auto& sent) {
        return ask(connection, sent, deadline);
      });
  if (answer && answer->type == MessageType::kError) {
    if (answer->number != 0) fail<ResourceExhaustedError>("{}", answer->value);
    fail<InvalidArgumentError>("{}", answer->value);
  }
  return answer;
}

std::optional<WireMessage> TcpStore::ask(StoreConnection& connection, const WireMessage& request,
                                         TimePoint deadline) const {
  connection.server.send(request, Clock::now() + kRequestLimit);
  while (true) {
    auto answer = connection.server.receive(std::min(deadline, Clock::now() + kCheckInterval));
    if (answer && connection.unread > 0) {
      --connection.unread;
      continue;
    }
    if (answer) return answer;
    if (check_) check_();
    if (Clock::now() >= deadline) return std::nullopt;
  }
}

void TcpStore::check_for_cause() const {
  if (!check_ || shut_down_) return;
  for (const TimePoint end = Clock::now() + kCauseLimit; Clock::now() < end;
       std::this_thread::sleep_for(std::chrono::milliseconds(2)))
    check_();
}

}  // namespace tandem
