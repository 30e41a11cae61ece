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

// All transports, and memory that is kept. Never destroyed: MPI_Finalize ends them.
struct AllTransports {
  std::mutex mutex;
  std::vector<Transport*> transports;
  std::vector<std::shared_ptr<void>> kept;
};
AllTransports& all_transports() {
  static auto& instance = *new AllTransports;
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

std::shared_ptr<Transport> Transport::make(const tandem_transport& functions, const char* label) {
  if (functions.size < sizeof(functions) || !functions.release)
    fail<InvalidArgumentError>("[{}] expected a structure of {} bytes with release(), got {}",
                               label, sizeof(functions), functions.size);
  try {
    if (lacks_something(functions))
      fail<InvalidArgumentError>("[{}] expected a transport with all functions", label);
    if (functions.longest != 0 && functions.longest < kShortestLimit)
      fail<InvalidArgumentError>("[{}] expected messages of at least {} bytes, got {}", label,
                                 kShortestLimit, functions.longest);
    if (functions.ranks < 1 || functions.rank < 0 || functions.rank >= functions.ranks)
      fail<InvalidArgumentError>("[{}] expected a rank of 0 to {}, got {}", label,
                                 functions.ranks - 1, functions.rank);
  } catch (...) {
    functions.release(functions.context);
    throw;
  }
  std::shared_ptr<Transport> made(new Transport(functions, label), retire);
  const auto lock = enter();
  release_retired();
  all_transports().transports.push_back(made.get());
  made->open();
  return made;
}

Transport::Transport(const tandem_transport& functions, const char* label)
    : functions_(functions), label_(label), peers_(static_cast<std::size_t>(functions.ranks)) {}

void Transport::open() {
  if (functions_.on_end)
    check(functions_.on_end(
              functions_.context, [](void* self) { static_cast<Transport*>(self)->end(); }, this),
          "on_end", rank());
  for (int peer = 0; peer < size(); ++peer)
    if (Peer& other = peers_[static_cast<std::size_t>(peer)]; peer != rank())
      other.request =
          post(peer, kNoticeTag, reinterpret_cast<std::byte*>(&other.notice), sizeof(Notice));
}

Transport::~Transport() { functions_.release(functions_.context); }

std::unique_lock<std::mutex> Transport::enter() { return std::unique_lock(all_transports().mutex); }

void Transport::retire(Transport* transport) noexcept {
  const auto lock = enter();
  transport->notify(GroupFailure::kNone, "");
  transport->retired_ = true;
  release_retired();
}

void Transport::release_retired() noexcept {
  std::erase_if(all_transports().transports, [](Transport* transport) {
    if (!transport->retired_ || !transport->all_have_left()) return false;
    delete transport;
    return true;
  });
}

bool Transport::leave_all() noexcept {
  const auto lock = enter();
  bool none_is_stuck = true;
  for (Transport* transport : all_transports().transports) {
    transport->notify(GroupFailure::kNone, "");
    none_is_stuck = none_is_stuck && !transport->stuck_;
  }
  return none_is_stuck;
}

void Transport::keep_for_ever(std::shared_ptr<void> memory) {
  const auto lock = enter();
  all_transports().kept.push_back(std::move(memory));
}

// One that has ended keeps its memory, into which a peer's notice may still be written.
bool Transport::all_have_left() {
  if (stuck_) return false;
  try {
    expect_alive();
    std::erase_if(sent_, [&](void*& request) { return is_done(request); });
    return sent_.empty() &&
           std::all_of(peers_.begin(), peers_.end(), [&](Peer& peer) { return is_known(peer); });
  } catch (const Error&) {
    return false;
  }
}

// The program ends its communication: peers that still wait learn that this rank has left.
void Transport::end() noexcept {
  const auto lock = enter();
  if (ended_) return;
  notify(GroupFailure::kNone, "");
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
    fail<AbortedError>("[{}] the program has ended its communication (MPI_Finalize)", label_);
}

void Transport::check(std::int32_t code, const char* what, int peer) const {
  if (code == 0) return;
  std::array<char, 256> text{};
  if (functions_.text) functions_.text(functions_.context, code, text.data(), text.size());
  fail<UnavailableError>("[{}] {} with rank {}: code {} {}", label_, what, peer, code, text.data());
}

void* Transport::send(int peer, int tag, const std::byte* data, std::size_t bytes) {
  const auto lock = enter();
  expect_alive();
  void* request = nullptr;
  check(functions_.send(functions_.context, data, static_cast<std::int64_t>(bytes), peer, tag,
                        &request),
        "send", peer);
  return request;
}

void* Transport::receive(int peer, int tag, std::byte* data, std::size_t bytes) {
  const auto lock = enter();
  return post(peer, tag, data, bytes);
}

void* Transport::post(int peer, int tag, std::byte* data, std::size_t bytes) {
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
  const auto lock = enter();
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
  const auto lock = enter();
  void* ending = std::exchange(request, nullptr);
  const bool alive = !ended_ && functions_.alive(functions_.context) != 0;
  receives_.erase(ending);
  const bool free = alive && functions_.cancel(functions_.context, &ending) == 0;
  stuck_ = stuck_ || !free;
  return free;
}

bool Transport::end_send(void*& request) noexcept {
  if (!request) return true;
  const auto lock = enter();
  try {
    expect_alive();
    if (is_done(request)) return true;
  } catch (const Error&) {
  }
  stuck_ = true;
  return false;
}

void Transport::notify_all(GroupFailure failure, const std::string& text) noexcept {
  const auto lock = enter();
  notify(failure, text);
}

void Transport::notify(GroupFailure failure, const std::string& text) noexcept {
  if (mine_) return;
  mine_ = Notice();
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
    logging::debug("[{}] no notice to the other ranks: {}", label_, error.what());
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
  const auto lock = enter();
  Peer& other = peers_[static_cast<std::size_t>(peer)];
  if (other.request) expect_alive();
  if (peer != rank() && is_known(other) && other.notice.failure != GroupFailure::kNone)
    throw_failure(other.notice.failure, other.notice.text);
  return other.left;
}

// Ranks that wait in the function cannot stop, so they meet before.
void Transport::meet(std::span<const int> ranks, int number, const SplitOptions& options) {
  auto call = std::make_shared<std::vector<std::byte>>(ranks.size() + 1);
  std::vector<void*> received(ranks.size()), sent(ranks.size());
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i] == rank()) continue;
    received[i] = receive(ranks[i], kSplitTag + number, &(*call)[i], 1);
    sent[i] = send(ranks[i], kSplitTag + number, &call->back(), 1);
  }
  const auto deadline = Clock::now() + options.time_limit;
  LongWait wait;
  try {
    for (;;) {
      std::vector<int> missing, here;
      for (std::size_t i = 0; i < ranks.size(); ++i)
        (complete(received[i]) ? here : missing).push_back(ranks[i]);
      if (missing.empty()) break;
      for (const int peer : missing)
        if (left(peer))
          fail<AbortedError>("[{}] rank {} has left the group", label_, options.names[peer]);
      if (options.membership && options.membership->failed()) options.membership->throw_failure();
      const auto describe = [&](std::chrono::milliseconds time) {
        return fmt::format("[{}] {} did not join group '{}' within {} ms; {} {} waiting", label_,
                           list_ranks(missing, options.names), options.name, time.count(),
                           list_ranks(here, options.names), here.size() == 1 ? "is" : "are");
      };
      if (Clock::now() > deadline) throw DeadlineExceededError(describe(options.time_limit));
      if (here.front() == rank()) wait.look(describe);  // the first warns for all
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  } catch (...) {
    for (void*& request : received) cancel(request);
    keep_for_ever(call);  // may still be sent or written
    throw;
  }
  for (void*& request : sent)
    while (!complete(request)) std::this_thread::yield();
}

std::shared_ptr<Transport> Transport::split(std::span<const int> ranks,
                                            const SplitOptions& options) {
  const int number = static_cast<int>(hash_of(options.name) % kSplitTags);
  meet(ranks, number, options);
  tandem_transport part = {};
  {
    auto lock = enter();
    if (allows_any_thread()) lock.unlock();  // the function waits for the others
    check(functions_.split(functions_.context, ranks.data(),
                           static_cast<std::int32_t>(ranks.size()), number, &part),
          "split", rank());
  }
  part.longest = functions_.longest;
  return make(part, label_);
}

template <class Start>
Transfers::Id TransportTransfers::start(bool sends, std::size_t bytes, const Start& start) {
  const Id first = parts_.size();
  for (std::size_t at = 0; at < bytes; at += longest_) {
    void* const request = start(at, std::min(bytes - at, longest_));
    parts_.push_back({request, sends, bytes - at > longest_});
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
    if (part.sends)
      part.in_use = !transport_.end_send(part.request);
    else if (part.request)
      part.in_use = !transport_.cancel(part.request);
    none = none && !part.in_use;
  }
  return none;
}

}  // namespace tandem
