#include "hvd/process_set_coordinator.h"

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

#include "core/joined.h"
#include "core/log.h"
#include "core/profile.h"
#include "core/status.h"

namespace tandem::hvd {
namespace {

using Clock = std::chrono::steady_clock;

// How often an idle rank runs a cycle, so that the others see that it is idle.
constexpr auto kIdlePace = std::chrono::milliseconds(10);
// After this many cycles without a result, a waiting thread sleeps between cycles.
constexpr int kEagerCycles = 64;
// How often a waiting rank checks that its peers are alive.
constexpr auto kCheckPeers = std::chrono::milliseconds(100);
constexpr auto kNap = std::chrono::microseconds(200);

std::string shut_down_text(const std::vector<int>& finished) {
  return fmt::format(
      "Horovod has been shut down. This was caused by an exception on one of the ranks or an "
      "attempt to allreduce, "
      "allgather or broadcast a tensor after one of the ranks finished execution. If the shutdown "
      "was caused by an "
      "exception, you should see the exception in the log before the first shutdown message. "
      "Finished: rank {}.",
      joined(finished, ", "));
}

}  // namespace

ProcessSetCoordinator::ProcessSetCoordinator(std::unique_ptr<Communicator> communicator,
                                             ProcessSetOptions options,
                                             std::shared_ptr<Timeline> timeline)
    : options_(std::move(options)),
      rank_(communicator->rank()),
      timeline_(std::move(timeline)),
      cycle_microseconds_(options_.settings.cycle_microseconds),
      communicator_(std::move(communicator)),
      executor_(*communicator_, *timeline_, options_.backend,
                [this](const OperationRef& operation, std::exception_ptr error) {
                  complete(operation, std::move(error));
                }),
      negotiation_(size(), static_cast<std::size_t>(options_.settings.cache_capacity),
                   RankNames(options_.ranks)),
      stalls_(std::chrono::seconds(options_.settings.stall_warning_seconds),
              options_.settings.stall_shutdown_seconds > 0
                  ? std::chrono::seconds(options_.settings.stall_shutdown_seconds)
                  : options_.time_limit),
      fusion_threshold_(options_.settings.fusion_threshold),
      began_(Clock::now()) {
  messages_.joined.resize(static_cast<std::size_t>(size()));
  messages_.requests.resize(static_cast<std::size_t>(size()));
  if (options_.settings.autotune && options_.id == 0 && rank_ == 0)
    autotune_.emplace(options_.settings, options_.autotune_log);
}

ProcessSetCoordinator::~ProcessSetCoordinator() = default;

// --- called by any thread ---

void ProcessSetCoordinator::submit(const OperationRef& operation) {
  process_.expect_this("hvd");
  if (timeline_->on()) operation->submitted = profile::now();
  bool first = false;
  {
    const std::lock_guard lock(mutex_);
    if (failure_) std::rethrow_exception(failure_);
    if (!by_name_.emplace(operation->request->name, operation).second)
      fail<InvalidArgumentError>(
          "Requested to allreduce, allgather, or broadcast a tensor with the same name as another "
          "tensor that is "
          "currently being processed. If you want to request another tensor, use a different "
          "tensor name. ('{}')",
          operation->request->name);
    first = submitted_.empty();
    if (first) submitted_at_ = Clock::now();
    submitted_.push_back(operation);
  }
  if (first) options_.wake();
}

void ProcessSetCoordinator::wait(const Handle::State& operation) {
  if (operation.done.load(std::memory_order_acquire)) return;
  process_.expect_this("hvd");
  std::unique_lock lock(mutex_);
  for (int cycles = 0; !operation.done.load(std::memory_order_acquire);) {
    if (driven_ || ++cycles > kEagerCycles) {
      changed_.wait_for(lock, std::chrono::milliseconds(1));
      if (driven_) continue;
    }
    if (operation.done.load(std::memory_order_acquire)) return;
    drive_cycles(lock, true);
  }
}

bool ProcessSetCoordinator::poll(const Handle::State& operation) {
  if (operation.done.load(std::memory_order_acquire)) return true;
  process_.expect_this("hvd");
  std::unique_lock lock(mutex_);
  if (!driven_ && !communicator_->allows_any_thread()) drive_cycles(lock, false);
  return operation.done.load(std::memory_order_acquire);
}

int ProcessSetCoordinator::join() {
  process_.expect_this("hvd");
  std::unique_lock lock(mutex_);
  if (failure_) std::rethrow_exception(failure_);
  const std::uint64_t joins = joins_;
  joining_ = true;
  while (joins_ == joins) {
    if (failure_) std::rethrow_exception(failure_);
    if (driven_) {
      changed_.wait_for(lock, std::chrono::milliseconds(1));
      continue;
    }
    drive_cycles(lock, true);
  }
  return last_joined_;
}

ProcessSetCoordinator::TickResult ProcessSetCoordinator::tick() {
  std::unique_lock lock(mutex_);
  if (driven_ || failure_ || !communicator_->allows_any_thread()) return TickResult::kIdle;
  const Clock::time_point now = Clock::now();
  const bool under_way = phase_ != Phase::kIdle;
  const bool pending = under_way || !submitted_.empty() || !waiting_.empty();
  const bool ready = under_way || (!submitted_.empty() && now - submitted_at_ >= cycle_time()) ||
                     (!waiting_.empty() && now - began_ >= cycle_time()) ||
                     (size() > 1 && now - began_ >= kIdlePace);
  if (!ready) return pending ? TickResult::kPending : TickResult::kIdle;
  drive_cycles(lock, false);
  return pending ? TickResult::kDriven : TickResult::kIdle;
}

void ProcessSetCoordinator::shut_down(std::chrono::milliseconds limit) {
  {
    const std::lock_guard lock(mutex_);
    finishing_ = true;
  }
  const Clock::time_point deadline = Clock::now() + limit;
  while (!failed() && Clock::now() < deadline) {
    {
      std::unique_lock lock(mutex_);
      if (!driven_) drive_cycles(lock, false);
    }
    if (!failed()) std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
}

bool ProcessSetCoordinator::failed() const {
  const std::lock_guard lock(mutex_);
  return failure_ != nullptr;
}

void ProcessSetCoordinator::abort(std::exception_ptr error) {
  const std::lock_guard lock(mutex_);
  if (failure_) return;
  failure_ = error;
  // Stays in by_name_: a backend that cannot cancel a collective may still write to its memory.
  for (auto& [name, operation] : by_name_) {
    operation->error = error;
    operation->done.store(true, std::memory_order_release);
  }
  changed_.notify_all();
}

void ProcessSetCoordinator::abort_and_wait() {
  abort(std::make_exception_ptr(
      AbortedError("[hvd] a step ended, by an error, before its operations did")));
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !driven_; });
}

bool ProcessSetCoordinator::wait_idle(std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, limit, [&] { return !driven_; }) && !work_ && executor_.idle();
}

// --- called by the thread that runs cycles ---

void ProcessSetCoordinator::drive_cycles(std::unique_lock<std::mutex>& lock, bool may_wait) {
  driven_ = true;
  lock.unlock();
  run_cycles(may_wait);
  lock.lock();
  driven_ = false;
  changed_.notify_all();
}

void ProcessSetCoordinator::run_cycles(bool may_wait) {
  if (failed()) return;
  began_ahead_ = false;
  try {
    if (phase_ == Phase::kIdle) begin_cycle();
    while (phase_ != Phase::kIdle && try_advance(may_wait)) {
    }
  } catch (const Error& error) {
    // Reports errors that the other ranks cannot detect themselves.
    const std::string_view kind = error.kind();
    if (kind != "AbortedError" && kind != "UnavailableError" && kind != "DeadlineExceededError")
      options_.report(std::string(kind) + ": " + error.what());
    abort(std::current_exception());
  } catch (const std::exception& error) {
    options_.report(error.what());
    abort(std::current_exception());
  }
}

bool ProcessSetCoordinator::try_advance(bool may_wait) {
  switch (phase_) {
    case Phase::kIdle: return false;
    case Phase::kAgree:
      if (!work_is_done(may_wait)) return false;
      if (!read_headers()) settle();
      return true;
    case Phase::kRequests:
      if (!work_is_done(may_wait)) return false;
      gather_requests();
      settle();
      return true;
    case Phase::kExecute:
      if (executor_.advance(false)) {
        end_cycle();
      } else if (may_begin_ahead(may_wait)) {
        began_ahead_ = true;
        end_cycle();
        begin_cycle();
      } else if (may_wait) {
        executor_.advance(true);
      } else {
        return false;
      }
      return true;
  }
  return false;
}

// If agreement takes a network's latency, the next operations are agreed on while earlier ones are
// in progress. A waiting thread does so at once, but only once, because its own operation may have
// ended. The background thread keeps to the cycle time, so that operations submitted in succession
// share a cycle.
bool ProcessSetCoordinator::may_begin_ahead(bool may_wait) const {
  if (may_wait && began_ahead_) return false;
  for (const bool joined : messages_.joined)
    if (joined) return false;
  const std::lock_guard lock(mutex_);
  return !submitted_.empty() && (may_wait || Clock::now() - began_ >= cycle_time());
}

// Stops waiting for the agreement once the operations of the last cycle have ended: this thread may
// wait for one of them, and other ranks may agree much later.
bool ProcessSetCoordinator::work_is_done(bool may_wait) {
  if (may_wait) {
    // After the time limit, the wait for the agreement reports the error.
    while (!executor_.idle() && Clock::now() - began_ < options_.time_limit && !work_->test()) {
      if (executor_.advance(false)) return false;
      check_peers();
    }
    work_->wait();
  } else {
    executor_.advance(false);
    if (!work_->test()) return false;
  }
  work_.reset();
  return true;
}

// Checks the peers from time to time, and sleeps briefly, as a wait for a single collective does.
void ProcessSetCoordinator::check_peers() {
  const auto now = Clock::now();
  if (now - checked_peers_ >= kCheckPeers) {
    checked_peers_ = now;
    work_->check_peers();
  }
  if (!work_->sleep(kNap)) std::this_thread::yield();
}

std::shared_ptr<CollectiveWork> ProcessSetCoordinator::gather(std::span<const std::byte> mine,
                                                              std::span<const std::size_t> bytes,
                                                              std::vector<std::byte>& all) {
  std::size_t total = 0;
  for (std::size_t count : bytes) total += count;
  all.resize(total);
  std::vector<Buffer> gathered;
  std::size_t offset = 0;
  for (std::size_t count : bytes) {
    gathered.push_back({all.data() + offset, static_cast<std::int64_t>(count), uint8});
    offset += count;
  }
  const Buffer own = {const_cast<std::byte*>(mine.data()), static_cast<std::int64_t>(mine.size()),
                      uint8};
  return communicator_->all_gather(own, gathered);
}

void ProcessSetCoordinator::begin_cycle() {
  CycleHeader header{.fusion_threshold = fusion_threshold_,
                     .cycle_microseconds = cycle_time().count()};
  {
    const std::lock_guard lock(mutex_);
    waiting_.insert(waiting_.end(), std::make_move_iterator(submitted_.begin()),
                    std::make_move_iterator(submitted_.end()));
    submitted_.clear();
    header.joined = joining_;
    header.finished = finishing_;
    began_ = Clock::now();
  }
  header.stalled = stalled_;
  const std::size_t words = negotiation_.words();
  mine_.assign(sizeof(CycleHeader) + words * sizeof(std::uint64_t), std::byte{0});
  auto* bits = reinterpret_cast<std::uint64_t*>(mine_.data() + sizeof(CycleHeader));
  requests_.clear();
  for (const OperationRef& operation : waiting_) {
    if (operation->sent) continue;
    const int slot = negotiation_.slot_of(operation->request, rank_);
    if (slot >= 0) {
      bits[slot / 64] |= std::uint64_t{1} << (slot % 64);
    } else {
      append_request(requests_, *operation->request);
      operation->sent = true;
    }
  }
  header.request_bytes = static_cast<std::uint32_t>(requests_.size());
  std::memcpy(mine_.data(), &header, sizeof(header));
  if (timeline_->marks_cycles()) timeline_->add("CYCLE", "CYCLE_START", profile::now());
  messages_.words = words;
  header_bytes_.assign(static_cast<std::size_t>(size()), mine_.size());
  work_ = gather(mine_, header_bytes_, gathered_);
  phase_ = Phase::kAgree;
}

bool ProcessSetCoordinator::read_headers() {
  const auto ranks = static_cast<std::size_t>(size());
  hits_.resize(ranks * messages_.words);
  request_bytes_.resize(ranks);
  std::vector<int> finished;
  bool stalled = false, requests = false;
  int last = -1;
  for (std::size_t r = 0; r < ranks; ++r) {
    const std::byte* from = gathered_.data() + r * mine_.size();
    CycleHeader header;
    std::memcpy(&header, from, sizeof(header));
    if (messages_.words > 0)
      std::memcpy(hits_.data() + r * messages_.words, from + sizeof(header),
                  messages_.words * sizeof(std::uint64_t));
    request_bytes_[r] = header.request_bytes;
    requests = requests || header.request_bytes > 0;
    if (header.finished) finished.push_back(options_.ranks[r]);
    stalled = stalled || header.stalled;
    if (header.joined && !messages_.joined[r]) last = static_cast<int>(r);
    messages_.joined[r] = header.joined;
    messages_.requests[r].clear();
    if (r == 0) {
      fusion_threshold_ = header.fusion_threshold;
      cycle_microseconds_.store(header.cycle_microseconds, std::memory_order_relaxed);
    }
  }
  messages_.hits = hits_;
  if (last >= 0) {
    const std::lock_guard lock(mutex_);
    last_joined_ = options_.ranks[static_cast<std::size_t>(last)];
  }
  if (stalled)
    throw DeadlineExceededError(
        "Operations were submitted by a subset of ranks, and the others did not come within the "
        "limit "
        "(HOROVOD_STALL_SHUTDOWN_TIME_SECONDS).\n" +
        missing_ranks(negotiation_.partials(messages_), {}));
  if (!finished.empty()) {
    executor_.advance(true);  // all ranks have agreed on these, so they can still finish
    throw AbortedError(shut_down_text(finished));
  }
  if (!requests) return false;
  work_ = gather(requests_, request_bytes_, gathered_requests_);
  phase_ = Phase::kRequests;
  return true;
}

void ProcessSetCoordinator::gather_requests() {
  std::size_t offset = 0;
  for (std::size_t r = 0; r < request_bytes_.size(); ++r) {
    messages_.requests[r] =
        parse_requests(std::span(gathered_requests_).subspan(offset, request_bytes_[r]));
    offset += request_bytes_[r];
    if (timeline_->on())
      for (const Request& request : messages_.requests[r])
        timeline_->add(request.name, fmt::format("{}", r), profile::now());
  }
}

void ProcessSetCoordinator::settle() {
  const std::vector<AgreementRef> ready = negotiation_.settle(messages_);
  phase_ = Phase::kExecute;
  executor_.start(
      ready, {.threshold = fusion_threshold_, .separate_groups = options_.settings.separate_groups},
      [this](const std::string& name) { return take(name); });
}

OperationRef ProcessSetCoordinator::take(const std::string& name) {
  const std::lock_guard lock(mutex_);
  const auto found = by_name_.find(name);
  if (found == by_name_.end()) return nullptr;
  if (found->second->submitted > 0)
    timeline_->add(name, fmt::format("NEGOTIATE_{}", upper_name_of(found->second->request->kind)),
                   found->second->submitted);
  std::erase(waiting_, found->second);
  return found->second;
}

void ProcessSetCoordinator::complete(const OperationRef& operation, std::exception_ptr error) {
  const std::lock_guard lock(mutex_);
  if (operation->done.load(std::memory_order_relaxed)) return;  // aborted meanwhile
  by_name_.erase(operation->request->name);
  operation->inputs.clear();
  operation->bucket.reset();
  operation->error = std::move(error);
  operation->done.store(true, std::memory_order_release);
}

void ProcessSetCoordinator::end_cycle() {
  phase_ = Phase::kIdle;
  bool all_joined = true;
  for (bool joined : messages_.joined) all_joined = all_joined && joined;
  if (all_joined) {
    std::fill(messages_.joined.begin(), messages_.joined.end(), false);
    const std::lock_guard lock(mutex_);
    joining_ = false;
    ++joins_;
  }
  if (autotune_ && autotune_->record(executor_.bytes(), Clock::now())) {
    fusion_threshold_ = autotune_->fusion_threshold();
    cycle_microseconds_.store(autotune_->cycle_microseconds(), std::memory_order_relaxed);
  }
  if (rank_ == 0) check_stalls();
}

void ProcessSetCoordinator::check_stalls() {
  const auto now = Clock::now();
  if (!stalls_.time_to_check(now)) return;
  const std::vector<Negotiation::Partial> partials = negotiation_.partials(messages_);
  if (const std::string text = stalls_.look(now, partials); !text.empty())
    logging::warn("[hvd] {}", text);
  stalled_ = stalls_.expired();
}

}  // namespace tandem::hvd
