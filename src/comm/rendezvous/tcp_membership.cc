#include "comm/rendezvous/tcp_membership.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <utility>

#include "comm/host_identity.h"
#include "comm/stall.h"
#include "core/status.h"
#include "core/threads.h"

namespace tandem {
namespace {

constexpr auto kReportLimit = std::chrono::seconds(1);

WireMessage heartbeat() { return {.type = MessageType::kHeartbeat}; }

[[noreturn]] void throw_as(bool aborted, const std::string& reason) {
  if (aborted) fail<AbortedError>("[membership] {}", reason);
  fail<UnavailableError>("[membership] {}", reason);
}

}  // namespace

TcpMembership::TcpMembership(ServerConnection connection, TcpMembershipOptions options,
                             const TimeLimit& limit)
    : options_(options),
      connection_(std::move(connection)),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!wake_.is_open()) fail<ResourceExhaustedError>("[membership] cannot open an eventfd");
  join(limit);
  thread_ = start_thread([this] { run(); });
}

// Those of this process that have noted a failure. They report it when the process exits, because
// process groups that the caller does not destroy are never destroyed.
struct TcpMembership::Noted {
  static Noted& get() {
    static auto& instance = *new Noted;
    return instance;
  }
  Noted() {
    std::atexit([] {
      const std::scoped_lock lock(get().mutex);  // none is destroyed meanwhile
      for (TcpMembership* one : get().memberships) one->report_noted_failure();
    });
  }

  std::mutex mutex;
  std::vector<TcpMembership*> memberships;
};

TcpMembership::~TcpMembership() {
  stop();
  if (noted_.empty()) return;
  const std::scoped_lock lock(Noted::get().mutex);
  std::erase(Noted::get().memberships, this);
}

void TcpMembership::join(const TimeLimit& limit) {
  bool accepted = false;
  std::optional<WireMessage> verdict;
  try {
    connection_.send(
        {.type = MessageType::kJoin,
         .rank = options_.rank,
         .number = getpid(),
         .key = host_name(),
         .value = encode(JoinTerms{.size = options_.size, .silence = options_.silence})},
        Clock::now() + options_.silence);
    verdict = await_verdict(limit.end, accepted);
    if (!verdict) verdict = check_join_timeout(limit);
  } catch (const UnavailableError& error) {
    verdict = last_verdict();
    if (!verdict && !accepted) throw NotAcceptedError(error.what());
    if (!verdict)
      fail<UnavailableError>("[rendezvous] {} is gone: {}", unknown_server(), error.what());
  }
  if (verdict->type == MessageType::kRefused)
    fail<InvalidArgumentError>("[rendezvous] {}", verdict->value);
  if (verdict->type == MessageType::kFailed) throw_as(verdict->number != 0, verdict->value);
  job_ = verdict->rank;
  server_ = fmt::format("{} (process {} on {})", options_.outside ? kOutsideServer : "rank 0",
                        verdict->number, verdict->key);
}

const char* TcpMembership::unknown_server() const {
  return options_.outside ? kOutsideServer : "rank 0, which hosts the job,";
}

std::optional<WireMessage> TcpMembership::await_verdict(Clock::time_point deadline,
                                                        bool& accepted) {
  Clock::time_point heard = Clock::now();
  LongWait wait;
  WireMessage alive;
  while (Clock::now() < deadline) {
    // The first rank that waits warns for all.
    if (accepted && alive.rank == options_.rank)
      wait.look([&](std::chrono::milliseconds time) {
        return "[rendezvous] " + describe_absence(alive, time);
      });
    auto message = connection_.receive(std::min(deadline, Clock::now() + options_.heartbeat));
    if (!message) {
      if (Clock::now() - heard > options_.silence)
        throw UnavailableError(describe_silence(options_.silence, threads_per_core()));
      connection_.send(heartbeat(), Clock::now() + options_.silence);
      continue;
    }
    if (message->type != MessageType::kAlive) return message;
    alive = *std::move(message);
    heard = Clock::now();
    accepted = true;
  }
  return std::nullopt;
}

std::string TcpMembership::describe_absence(const WireMessage& alive,
                                            std::chrono::milliseconds time) const {
  return describe_missing(alive, options_.size, time) +
         (options_.hint.empty() ? "" : "; " + options_.hint);
}

WireMessage TcpMembership::check_join_timeout(const TimeLimit& limit) {
  const Clock::time_point end = Clock::now() + kReportLimit;
  std::string what =
      fmt::format("{} does not answer within {} ms", unknown_server(), limit.length.count());
  connection_.send(heartbeat(), end);
  if (const auto message = connection_.receive(end)) {
    if (message->type != MessageType::kAlive) return *message;
    what = describe_absence(*message, limit.length);
  }
  try {
    connection_.send({.type = MessageType::kReport, .value = what}, end);
    for (auto heard = connection_.receive(end); heard && heard->type != MessageType::kReported;)
      heard = connection_.receive(end);
  } catch (const UnavailableError&) {
    // The server has aborted at the same moment and closed; the reason is the same.
  }
  fail<DeadlineExceededError>("[rendezvous] {}", what);
}

// The server may have sent a verdict before it closed.
std::optional<WireMessage> TcpMembership::last_verdict() {
  try {
    while (auto message = connection_.receive(Clock::time_point()))
      if (message->type != MessageType::kAlive) return message;
  } catch (const UnavailableError&) {
    // There was none.
  }
  return std::nullopt;
}

void TcpMembership::throw_failure() const {
  const std::scoped_lock lock(mutex_);
  if (!failed_.load())
    fail<AbortedError>("[membership] {} has left the job, and this rank waits for all ranks",
                       left_);
  throw_as(aborted_, failure_);
}

void TcpMembership::report(const std::string& reason) {
  post({.type = MessageType::kReport, .value = reason.substr(0, std::size_t{64} << 10)},
       Clock::now() + kReportLimit);
}

void TcpMembership::note_failure(const std::string& reason) {
  {
    const std::scoped_lock lock(mutex_);
    if (!noted_.empty()) return;
    noted_ = reason;
  }
  const std::scoped_lock lock(Noted::get().mutex);
  Noted::get().memberships.push_back(this);
}

void TcpMembership::report_noted_failure() {
  std::string reason;
  {
    const std::scoped_lock lock(mutex_);
    reason = noted_;
  }
  if (!reason.empty()) report(reason);
}

void TcpMembership::shut_down(Clock::time_point deadline) {
  post({.type = MessageType::kGoodbye}, deadline);
  stop();
}

void TcpMembership::post(const WireMessage& message, Clock::time_point deadline) {
  std::unique_lock lock(mutex_);
  if (ended_) return;
  pending_.push_back(message);
  eventfd_write(wake_.descriptor(), 1);
  const bool goodbye = message.type == MessageType::kGoodbye;
  if (!goodbye) ++unanswered_;
  changed_.wait_until(lock, deadline, [&] { return ended_ || (!goodbye && unanswered_ == 0); });
}

void TcpMembership::stop() {
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
    if (wake_.is_open()) eventfd_write(wake_.descriptor(), 1);
  }
  if (thread_.joinable()) thread_.join();
}

void TcpMembership::run() {
  Clock::time_point heard = Clock::now(), next_beat = heard + options_.heartbeat;
  const auto stopping = [this] {
    const std::scoped_lock lock(mutex_);
    return stopping_;
  };
  try {
    bool more = true;
    while (more && !stopping()) {
      std::array<pollfd, 2> polled = {
          {{connection_.socket().descriptor(), POLLIN, 0}, {wake_.descriptor(), POLLIN, 0}}};
      const auto wait = std::chrono::ceil<std::chrono::milliseconds>(next_beat - Clock::now());
      poll(polled.data(), polled.size(), static_cast<int>(std::max<std::int64_t>(wait.count(), 0)));
      if (polled[1].revents != 0) {
        eventfd_t ignored = 0;
        eventfd_read(wake_.descriptor(), &ignored);
      }
      // Reads what has arrived before judging the server's silence.
      while (more) {
        const auto message = connection_.receive(Clock::time_point());
        if (!message) break;
        heard = Clock::now();
        more = handle(*message);
      }
      if (Clock::now() - heard > options_.silence)
        throw UnavailableError(describe_silence(options_.silence, threads_per_core()));
      send_pending();
      if (Clock::now() >= next_beat) {
        connection_.send(heartbeat(), Clock::now() + options_.silence);
        next_beat = Clock::now() + options_.heartbeat;
      }
    }
  } catch (const Error& error) {
    if (!read_remaining())
      record_failure(false, fmt::format("{} is gone: {}", server_, error.what()));
  }
  const std::scoped_lock lock(mutex_);
  ended_ = true;
  changed_.notify_all();
}

bool TcpMembership::read_remaining() {
  try {
    while (const auto message = connection_.receive(Clock::time_point()))
      if (!handle(*message)) return true;
  } catch (const Error&) {
    // No more messages.
  }
  return false;
}

bool TcpMembership::handle(const WireMessage& message) {
  if (message.type == MessageType::kFailed) record_failure(message.number != 0, message.value);
  if (message.type == MessageType::kAlive && message.number == 0 && !message.value.empty())
    record_departure(message);
  if (message.type == MessageType::kReported) {
    const std::scoped_lock lock(mutex_);
    --unanswered_;
    changed_.notify_all();
  }
  return message.type != MessageType::kFarewell;
}

void TcpMembership::record_departure(const WireMessage& message) {
  const std::scoped_lock lock(mutex_);
  if (one_left_.load()) return;
  left_ = message.value;
  one_left_.store(true);
}

void TcpMembership::send_pending() {
  std::vector<WireMessage> messages;
  {
    const std::scoped_lock lock(mutex_);
    messages.swap(pending_);
  }
  for (const WireMessage& message : messages)
    connection_.send(message, Clock::now() + options_.silence);
}

void TcpMembership::record_failure(bool aborted, const std::string& reason) {
  const std::scoped_lock lock(mutex_);
  if (failed_.load()) return;  // the first failure is the cause
  aborted_ = aborted;
  failure_ = reason;
  failed_.store(true);
}

}  // namespace tandem
