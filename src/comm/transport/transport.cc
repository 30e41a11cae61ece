#include "comm/transport/transport.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <thread>

#include "comm/stall.h"
#include "core/log.h"
#include "core/status.h"

namespace tandem {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int32_t kShortestLimit = 1 << 11;

// Those whose peers have not all left. Never destroyed: MPI_Finalize ends them.
struct Retired {
  std::mutex mutex;
  std::vector<Transport*> transports;
};
Retired& retired() {
  static auto& instance = *new Retired;
  return instance;
}

std::uint64_t hash_of(std::string_view name) {
  std::uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a
  for (const char letter : name)
    hash = (hash ^ static_cast<unsigned char>(letter)) * 0x100000001b3u;
  return hash;
}

bool lacks_something(const tandem_transport& functions) {
  return functions.size < sizeof(functions) || !functions.send || !functions.receive ||
         !functions.test || !functions.cancel || !functions.alive || !functions.split;
}

}  // namespace

std::shared_ptr<Transport> Transport::make(const tandem_transport& functions) {
  look_at_retired();
  if (functions.size < sizeof(functions) || !functions.release)
    fail<InvalidArgumentError>(
        "[transport] expected a structure of {} bytes with release(), got {}", sizeof(functions),
        functions.size);
  try {
    if (lacks_something(functions))
      throw InvalidArgumentError("[transport] expected a transport with all functions");
    if (functions.longest != 0 && functions.longest < kShortestLimit)
      fail<InvalidArgumentError>("[transport] expected messages of at least {} bytes, got {}",
                                 kShortestLimit, functions.longest);
    if (functions.ranks < 1 || functions.rank < 0 || functions.rank >= functions.ranks)
      fail<InvalidArgumentError>("[transport] expected a rank of 0 to {}, got {}",
                                 functions.ranks - 1, functions.rank);
  } catch (...) {
    functions.release(functions.context);
    throw;
  }
  std::shared_ptr<Transport> made(new Transport(functions), retire);
  made->open();
  return made;
}

Transport::Transport(const tandem_transport& functions)
    : functions_(functions), peers_(static_cast<std::size_t>(functions.ranks)) {}

void Transport::open() {
  if (functions_.on_end)
    check(functions_.on_end(
              functions_.context, [](void* self) { static_cast<Transport*>(self)->end(); }, this),
          "on_end", rank());
  for (int peer = 0; peer < size(); ++peer)
    if (Peer& other = peers_[static_cast<std::size_t>(peer)]; peer != rank())
      other.request =
          receive(peer, kNoticeTag, reinterpret_cast<std::byte*>(&other.notice), sizeof(Notice));
}

Transport::~Transport() { functions_.release(functions_.context); }

void Transport::retire(Transport* transport) noexcept {
  transport->notify_all(GroupFailure::kNone, "");
  {
    const std::lock_guard lock(retired().mutex);
    retired().transports.push_back(transport);
  }
  look_at_retired();
}

void Transport::look_at_retired() noexcept {
  const std::lock_guard lock(retired().mutex);
  std::erase_if(retired().transports, [](Transport* transport) {
    if (!transport->all_have_left()) return false;
    delete transport;
    return true;
  });
}

// One that has ended keeps its memory, into which a peer's notice may still be written.
bool Transport::all_have_left() {
  const std::lock_guard lock(mutex_);
  try {
    expect_alive();
    std::erase_if(sent_, [&](void*& request) { return is_done(request); });
    return sent_.empty() &&
           std::all_of(peers_.begin(), peers_.end(), [&](Peer& peer) { return is_known(peer); });
  } catch (const Error&) {
    return false;
  }
}

// The program ends its communication.
void Transport::end() noexcept {
  const std::lock_guard lock(mutex_);
  if (ended_) return;
  for (void* request : receives_) functions_.cancel(functions_.context, &request);
  receives_.clear();
  ended_ = true;
}

std::size_t Transport::longest() const {
  return functions_.longest > 0 ? static_cast<std::size_t>(functions_.longest)
                                : std::size_t{1} << 30;
}

void Transport::expect_alive() const {
  if (ended_ || functions_.alive(functions_.context) == 0)
    throw AbortedError("[transport] the program has ended its communication (MPI_Finalize)");
}

void Transport::check(std::int32_t code, const char* what, int peer) const {
  if (code == 0) return;
  std::array<char, 256> text{};
  if (functions_.text) functions_.text(functions_.context, code, text.data(), text.size());
  fail<UnavailableError>("[transport] {} with rank {}: code {} {}", what, peer, code, text.data());
}

void* Transport::send(int peer, int tag, const std::byte* data, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  expect_alive();
  void* request = nullptr;
  check(functions_.send(functions_.context, data, static_cast<std::int64_t>(bytes), peer, tag,
                        &request),
        "send", peer);
  return request;
}

void* Transport::receive(int peer, int tag, std::byte* data, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  expect_alive();
  void* request = nullptr;
  check(functions_.receive(functions_.context, data, static_cast<std::int64_t>(bytes), peer, tag,
                           &request),
        "receive", peer);
  receives_.insert(request);
  return request;
}

bool Transport::complete(void*& request) {
  if (!request) return true;
  const std::lock_guard lock(mutex_);
  expect_alive();
  return is_done(request);
}

bool Transport::is_done(void*& request) {
  void* const before = request;
  std::int32_t done = 0;
  check(functions_.test(functions_.context, &request, &done), "test", rank());
  if (done == 0) return false;
  receives_.erase(before);
  request = nullptr;
  return true;
}

bool Transport::cancel(void*& request) noexcept {
  if (!request) return true;
  const std::lock_guard lock(mutex_);
  void* ending = std::exchange(request, nullptr);
  if (ended_ || functions_.alive(functions_.context) == 0) return false;
  receives_.erase(ending);
  return functions_.cancel(functions_.context, &ending) == 0;
}

void Transport::notify_all(GroupFailure failure, const std::string& text) noexcept {
  const std::lock_guard lock(mutex_);
  if (mine_) return;
  mine_.emplace();
  mine_->failure = failure;
  std::memcpy(mine_->text, text.data(), std::min(text.size(), sizeof(mine_->text) - 1));
  try {
    expect_alive();
    for (int peer = 0; peer < size(); ++peer) {
      if (peer == rank()) continue;
      void* request = nullptr;
      check(
          functions_.send(functions_.context, &*mine_, sizeof(Notice), peer, kNoticeTag, &request),
          "send", peer);
      sent_.push_back(request);
    }
  } catch (const std::exception& error) {  // peers find out by their time limits
    logging::debug("[transport] no notice to the other ranks: {}", error.what());
  }
}

bool Transport::is_known(Peer& peer) {
  if (!peer.request) return true;
  if (!is_done(peer.request)) return false;
  peer.notice.text[sizeof(peer.notice.text) - 1] = 0;
  peer.left = Clock::now();
  return true;
}

std::optional<Clock::time_point> Transport::left(int peer) {
  const std::lock_guard lock(mutex_);
  Peer& other = peers_[static_cast<std::size_t>(peer)];
  if (other.request) expect_alive();
  if (peer != rank() && is_known(other) && other.notice.failure != GroupFailure::kNone)
    throw_failure(other.notice.failure, other.notice.text);
  return other.left;
}

std::shared_ptr<Transport> Transport::split(std::span<const int> ranks, const std::string& name,
                                            const RankNames& names,
                                            std::chrono::milliseconds limit) {
  const int number = static_cast<int>(hash_of(name) % kSplitTags);
  // Ranks that wait in split() cannot stop, so they meet before.
  auto call = std::make_shared<std::vector<std::byte>>(ranks.size() + 1);
  std::vector<void*> received(ranks.size()), sent(ranks.size());
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i] == rank()) continue;
    received[i] = receive(ranks[i], kSplitTag + number, &(*call)[i], 1);
    sent[i] = send(ranks[i], kSplitTag + number, &call->back(), 1);
  }
  const auto deadline = Clock::now() + limit;
  LongWait wait;
  try {
    for (;;) {
      std::vector<int> missing;
      for (std::size_t i = 0; i < ranks.size(); ++i)
        if (!complete(received[i])) missing.push_back(ranks[i]);
      if (missing.empty()) break;
      for (const int peer : missing)
        if (left(peer)) fail<AbortedError>("[transport] rank {} has left the group", names[peer]);
      const auto describe = [&](std::chrono::milliseconds time) {
        return fmt::format("[transport] {} did not join group '{}' within {} ms",
                           list_ranks(missing, names), name, time.count());
      };
      if (Clock::now() > deadline) throw DeadlineExceededError(describe(limit));
      if (ranks.front() == rank()) wait.look(describe);
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  } catch (...) {
    for (void*& request : received) cancel(request);
    static auto& kept = *new std::vector<std::shared_ptr<void>>;  // may still be sent or written
    const std::lock_guard lock(retired().mutex);
    kept.push_back(call);
    throw;
  }
  for (void*& request : sent)
    while (!complete(request)) std::this_thread::yield();
  tandem_transport part = {};
  check(functions_.split(functions_.context, ranks.data(), static_cast<std::int32_t>(ranks.size()),
                         number, &part),
        "split", rank());
  part.longest = functions_.longest;
  return make(part);
}

template <class Start>
Transfers::Id TransportTransfers::start(bool sends, std::size_t bytes, const Start& start) {
  const Id first = parts_.size();
  const std::size_t longest = transport_.longest();
  for (std::size_t at = 0; at < bytes; at += longest) {
    void* const request = start(at, std::min(bytes - at, longest));
    parts_.push_back({request, sends, bytes - at > longest});
  }
  return first;
}

Transfers::Id TransportTransfers::send(int peer, int phase, const std::byte* data,
                                       std::size_t bytes) {
  return start(true, bytes, [&](std::size_t at, std::size_t count) {
    return transport_.send(peer, tag_ + phase, data + at, count);
  });
}

Transfers::Id TransportTransfers::receive(int peer, int phase, std::byte* data, std::size_t bytes) {
  return start(false, bytes, [&](std::size_t at, std::size_t count) {
    return transport_.receive(peer, tag_ + phase, data + at, count);
  });
}

bool TransportTransfers::complete(Id id) {
  for (;; ++id) {
    if (!transport_.complete(parts_[id].request)) return false;
    if (!parts_[id].continues) return true;
  }
}

bool TransportTransfers::cancel() noexcept {
  bool none = true;
  for (Part& part : parts_) {
    if (part.sends) {
      try {
        part.in_use = !transport_.complete(part.request);
      } catch (const std::exception&) {
        part.in_use = part.request != nullptr;
      }
    } else if (part.request) {
      part.in_use = !transport_.cancel(part.request);
    }
    none = none && !part.in_use;
  }
  return none;
}

}  // namespace tandem
