#include "comm/rendezvous/coordinator.h"

#include <algorithm>
#include <utility>

#include "core/status.h"

namespace tandem {
namespace {

constexpr std::size_t kHostBytes = 255;  // maximum length of a host name

}  // namespace

Coordinator::Coordinator(CoordinatorOptions options, Send send)
    : options_(std::move(options)),
      send_(std::move(send)),
      members_(static_cast<std::size_t>(options_.size)) {
  for (int rank = 0; rank < options_.size; ++rank) missing_.insert(missing_.end(), rank);
}

bool Coordinator::handle(int connection, const WireMessage& message, TimePoint now) {
  if (message.type == MessageType::kJoin) return join(connection, message, now);
  if (message.type <= MessageType::kRemove) return handle_store(connection, message);
  const auto member = rank_of_.find(connection);
  if (member == rank_of_.end()) return false;
  members_[static_cast<std::size_t>(member->second)].heard = now;
  return handle_member(member->second, message);
}

bool Coordinator::handle_store(int connection, const WireMessage& message) {
  if (waits_for_.contains(connection)) return false;  // one request at a time
  if (message.rank != options_.job) return false;     // from a rank of an earlier job
  try {
    switch (message.type) {
      case MessageType::kSet:
        values_.set(message.key, message.value);
        send_(connection, {.type = MessageType::kNumber});
        answer_waiting(message.key);
        return true;
      case MessageType::kGet:
        if (message.number != 0 && values_.find(message.key) == nullptr) {
          send_(connection, {.type = MessageType::kNumber});
          return true;
        }
        waiting_[message.key].push_back(connection);
        waits_for_[connection] = message.key;
        if (values_.find(message.key) != nullptr) answer_waiting(message.key);
        return true;
      case MessageType::kAdd:
        send_(connection,
              {.type = MessageType::kNumber, .number = values_.add(message.key, message.number)});
        answer_waiting(message.key);
        return true;
      case MessageType::kRemove:
        values_.remove(message.key);
        send_(connection, {.type = MessageType::kNumber});
        return true;
      default: return false;
    }
  } catch (const ResourceExhaustedError& error) {
    send_(connection, {.type = MessageType::kError, .number = 1, .value = error.what()});
  } catch (const InvalidArgumentError& error) {
    send_(connection, {.type = MessageType::kError, .value = error.what()});
  }
  return true;
}

void Coordinator::answer_waiting(const std::string& key) {
  const auto found = waiting_.find(key);
  if (found == waiting_.end()) return;
  const WireMessage answer = {.type = MessageType::kValue, .value = *values_.find(key)};
  const std::vector<int> connections = std::move(found->second);
  waiting_.erase(found);
  for (const int connection : connections) waits_for_.erase(connection);
  for (const int connection : connections) send_(connection, answer);
}

void Coordinator::forget_waiting(int connection) {
  const auto found = waits_for_.find(connection);
  if (found == waits_for_.end()) return;
  const auto waiting = waiting_.find(found->second);
  std::erase(waiting->second, connection);
  if (waiting->second.empty()) waiting_.erase(waiting);
  waits_for_.erase(found);
}

bool Coordinator::join(int connection, const WireMessage& message, TimePoint now) {
  const auto terms = decode_join_terms(message.value);
  if (!terms || rank_of_.contains(connection)) return false;
  const auto refuse = [&](const std::string& reason) {
    send_(connection, {.type = MessageType::kRefused, .value = reason});
    // The process knows the secret, so it belongs to this job, which will miss a rank without it.
    if (assembling() && !failure_)
      announce({.type = MessageType::kFailed,
                .rank = message.rank,
                .number = 1,
                .value = fmt::format("a process ({} on {}) was refused: {}", message.number,
                                     message.key.substr(0, kHostBytes), reason)});
    return true;
  };
  if (terms->size != options_.size)
    return refuse(fmt::format("rank {} expects a job of {} ranks, {} one of {}", message.rank,
                              terms->size, options_.outside ? kOutsideServer : "rank 0",
                              options_.size));
  if (message.rank < 0 || message.rank >= options_.size)
    return refuse(
        fmt::format("there is no rank {} in a job of {} ranks", message.rank, options_.size));
  RankRecord& member = members_[static_cast<std::size_t>(message.rank)];
  // The process wants to join the next job, which has not begun: it retries.
  const bool has_failed = member.state == State::kFailed && reports_failed_start();
  if (member.state == State::kLeft || (options_.outside && has_failed)) return false;
  if (member.state == State::kPresent)
    return refuse(fmt::format("{} is in the job already", describe(message.rank)));
  missing_.erase(message.rank);
  if (failure_) {
    member.state = State::kFailed;
    send_(connection, *failure_);
    return true;
  }
  member = {.state = State::kPresent,
            .connection = connection,
            .host = message.key.substr(0, kHostBytes),
            .pid = message.number,
            .heard = now,
            .silence = terms->silence};
  rank_of_[connection] = message.rank;
  send_(connection, alive());
  if (missing_.empty()) start();
  return true;
}

bool Coordinator::handle_member(int rank, const WireMessage& message) {
  RankRecord& member = members_[static_cast<std::size_t>(rank)];
  switch (message.type) {
    case MessageType::kHeartbeat: send_(member.connection, alive()); return true;
    case MessageType::kReport:
      if (member.state == State::kPresent) {
        member.state = State::kFailed;
        announce_failure(rank, true, message.value);
      }
      send_(member.connection, {.type = MessageType::kReported});
      return true;
    case MessageType::kGoodbye:
      if (member.state == State::kPresent) {
        member.state = State::kLeft;
        if (left_ < 0) left_ = rank;
      }
      send_(member.connection, {.type = MessageType::kFarewell});
      return true;
    default: return false;
  }
}

// Names a limited number of ranks, to keep the message short in a job of thousands.
WireMessage Coordinator::alive() const {
  constexpr int kNamed = 16;
  WireMessage message = {.type = MessageType::kAlive};
  if (!assembling()) {
    if (left_ >= 0) message.value = describe(message.rank = left_);
    return message;
  }
  while (missing_.contains(message.rank)) ++message.rank;
  for (const int rank : missing_)
    if (++message.number <= kNamed)
      message.value += fmt::format("{}{}", message.number == 1 ? "" : ", ", rank);
    else
      break;
  message.number = static_cast<std::int64_t>(missing_.size());
  if (message.number > kNamed)
    message.value += fmt::format(" and {} more", message.number - kNamed);
  if (refused_ > 0)
    message.key = fmt::format(
        "{} {} refused, the first at {}: another token than this job's, or another user", refused_,
        refused_ == 1 ? "process was" : "processes were", refused_at_);
  return message;
}

void Coordinator::start() {
  const WireMessage message = {
      .type = MessageType::kStarted,
      .rank = options_.job,
      .number = options_.outside ? options_.outside->pid : members_.front().pid,
      .key = options_.outside ? options_.outside->name : members_.front().host};
  for (const RankRecord& member : members_) send_(member.connection, message);
}

void Coordinator::dropped(int connection, const std::string& reason) {
  forget_waiting(connection);
  const auto found = rank_of_.find(connection);
  if (found == rank_of_.end()) return;
  const int rank = found->second;
  rank_of_.erase(found);
  RankRecord& member = members_[static_cast<std::size_t>(rank)];
  if (member.state != State::kPresent) return;
  member.state = State::kFailed;
  announce_failure(rank, false, reason);
}

void Coordinator::tick(TimePoint now) {
  for (std::size_t rank = 0; rank < members_.size(); ++rank) {
    RankRecord& member = members_[rank];
    if (member.state != State::kPresent || now - member.heard <= member.silence) continue;
    member.state = State::kFailed;
    announce_failure(static_cast<int>(rank), false,
                     describe_silence(member.silence, threads_per_core()));
  }
}

void Coordinator::ended(int rank) {
  if (failure_ || !missing_.contains(rank) || deserted()) return;
  announce_failure(rank, false, "its process ended before it had joined the job");
}

void Coordinator::close() {
  if (options_.outside) return announce_failure(kOutside, false, "it was closed");
  if (members_.front().state != State::kLeft) return;
  announce_failure(0, false, "it left the job and shut down its rendezvous server");
}

bool Coordinator::deserted() const {
  return std::none_of(members_.begin(), members_.end(),
                      [](const RankRecord& member) { return member.state == State::kPresent; });
}

void Coordinator::refused(const std::string& address) {
  if (++refused_ == 1) refused_at_ = address;
}

void Coordinator::abort(const std::string& reason) {
  if (!failure_) announce_failure(host(), true, reason);
}

std::string Coordinator::failure() const {
  const bool well = std::any_of(members_.begin(), members_.end(), [](const RankRecord& member) {
    return member.state == State::kLeft;
  });
  return well || !failure_ ? "" : failure_->value;
}

void Coordinator::announce_failure(int rank, bool aborted, const std::string& reason) {
  left_ = -1;
  const std::string what = fmt::format(fmt::runtime(aborted ? "{} aborted: {}" : "{} is gone: {}"),
                                       describe(rank), reason);
  announce({.type = MessageType::kFailed,
            .rank = rank,
            .number = aborted ? 1 : 0,
            .value = what.substr(0, kMaxValueBytes)});
}

void Coordinator::announce(WireMessage message) {
  // Includes the rank itself, which may only have lost its connection. Rank 0 is informed last,
  // because its end may end the server.
  for (std::size_t other = members_.size(); other-- > 0;) {
    RankRecord& member = members_[other];
    const bool itself = static_cast<int>(other) == message.rank && message.number == 0;
    if (member.state != State::kPresent && !itself) continue;
    if (!std::exchange(member.informed, true)) send_(member.connection, message);
  }
  if (!failure_) failure_ = std::move(message);
}

std::string Coordinator::describe(int rank) const {
  if (rank == kOutside)
    return fmt::format("{} (process {} on {})", kOutsideServer, options_.outside->pid,
                       options_.outside->name);
  const RankRecord& member = members_[static_cast<std::size_t>(rank)];
  if (member.host.empty()) return fmt::format("rank {}", rank);
  return fmt::format("rank {} (process {} on {})", rank, member.pid, member.host);
}

}  // namespace tandem
