#include "comm/process/process_group.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "comm/process/first_failure.h"
#include "comm/process/group_name.h"
#include "comm/stall.h"
#include "core/log.h"
#include "core/profile.h"
#include "core/status.h"
#include "device/copy.h"

namespace tandem {
namespace {

using Clock = std::chrono::steady_clock;

bool is_message(CollectiveKind kind) {
  return kind == CollectiveKind::kSend || kind == CollectiveKind::kRecv;
}

}  // namespace

ProcessWork::ProcessWork(std::shared_ptr<ProcessGroupState> group, const CheckedCall& call)
    : group_(std::move(group)) {
  const bool in_place = works_in_place(call.kind);
  buffers_.assign(call.in.begin(), call.in.end());
  buffers_.insert(buffers_.end(), call.out.begin(), call.out.end());
  collective_.signature = call.signature();
  if (!is_message(call.kind)) collective_.sequence = group_->next_sequence++;
  collective_.label = group_->label;
  if (profile::on()) [[unlikely]]
    begin_ = profile::now();
  if (call.kind != CollectiveKind::kExchange && !group_->device.host_accessible() &&
      !group_->backend->supports_device_memory())
    stage(call.in.size(), in_place);
  const std::span<const Buffer> all(staging_ ? staged_ : buffers_);
  collective_.in = all.first(call.in.size());
  collective_.out = in_place ? all : all.subspan(call.in.size());
}

// After a failure the device may still be copying to the staging memory. Not StreamEvent::wait(),
// which would consume the device's error; the program must receive it.
ProcessWork::~ProcessWork() {
  try {
    while (staging_ && !ready_.done()) std::this_thread::yield();
  } catch (const Error&) {  // a broken device copies nothing
  }
}

bool ProcessWork::start() {
  if (started()) return true;
  if (!ready_.done()) return false;
  ready_.wait();  // throws the device's error, so that peers do not receive bad data
  operation_ = group_->backend->start(collective_);
  return true;
}

bool ProcessWork::advance() {
  if (arrived_) return true;
  if (!operation_->advance()) return false;
  operation_.reset();
  if (begin_ > 0) [[unlikely]]
    end_ = profile::now();
  return arrived_ = true;
}

bool ProcessWork::advance_if_possible() {
  if (arrived_) return false;
  const std::uint64_t steps = operation_->steps();
  return advance() || operation_->steps() != steps;
}

void ProcessWork::wait() {
  if (done_) return;
  const profile::Span span([&] {
    return profile::Event{.name = "wait for " + std::string(name_of(collective_.signature.kind)),
                          .replica = group_->backend->rank(),
                          .bytes = bytes()};
  });
  group_->wait(*this);
}

bool ProcessWork::test() { return done_ || group_->test(*this); }

void ProcessWork::check_peers() {
  if (!done_) group_->check_peers(*this);
}

std::vector<int> ProcessWork::missing() const {
  return done_ ? std::vector<int>{} : group_->missing(*this);
}

bool ProcessWork::sleep(std::chrono::microseconds limit) const {
  return done_ || group_->sleep(*this, limit);
}

// Allocates host memory for buffers that the host cannot access, and enqueues the copy of their
// contents.
void ProcessWork::stage(std::size_t inputs, bool in_place) {
  std::size_t bytes = 0;
  for (const Buffer& buffer : buffers_) bytes += buffer.bytes();
  if (bytes == 0) return;
  staging_ = group_->backend->allocate(bytes);
  if (!staging_) staging_ = std::make_shared_for_overwrite<std::byte[]>(bytes);
  auto* at = static_cast<std::byte*>(staging_.get());
  staged_ = buffers_;
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    staged_[i].data = at;
    at += buffers_[i].bytes();
    if (i < inputs && buffers_[i].count > 0)
      device_to_host(staged_[i].data, group_->device, buffers_[i].data, buffers_[i].bytes());
  }
  first_out_ = in_place ? 0 : inputs;
  ready_ = group_->device.stream().record();
}

bool ProcessWork::writes_here() const {
  const Signature& signature = collective_.signature;
  const bool root = signature.root == group_->backend->rank();
  switch (signature.kind) {
    case CollectiveKind::kReduce: return root;
    case CollectiveKind::kBroadcast: return !root;
    case CollectiveKind::kSend: return false;
    default: return true;
  }
}

void ProcessWork::finish() {
  if (staging_ && writes_here())
    for (std::size_t i = first_out_; i < buffers_.size(); ++i)
      if (buffers_[i].count > 0)
        host_to_device(group_->device, buffers_[i].data, staged_[i].data, buffers_[i].bytes());
  staging_.reset();
  done_ = true;
  if (end_ > 0 && profile::on()) [[unlikely]]
    profile::record({.name = std::string(name_of(collective_.signature.kind)),
                     .lane = profile::Lane::kCollectives,
                     .device = &group_->device.full_name(),
                     .replica = group_->backend->rank(),
                     .begin = begin_,
                     .end = end_,
                     .bytes = bytes()});
}

std::int64_t ProcessWork::bytes() const {
  std::size_t sum = 0;
  for (const Buffer& buffer : collective_.in) sum += buffer.bytes();
  return static_cast<std::int64_t>(sum);
}

void ProcessGroupState::submit(const std::shared_ptr<ProcessWork>& work) {
  const auto lock = attend();
  throw_if_failed();
  if (options.membership && options.membership->failed()) submitted_after_failure_ = true;
  open_.push_back(work);
  advance(nullptr);
  hand_over_to_engine();
}

void ProcessGroupState::progress() {
  const auto lock = attend();
  advance(nullptr);
}

bool ProcessGroupState::test(ProcessWork& work) {
  const auto lock = attend();
  if (take(work)) return true;
  advance(&work);
  return work.done();
}

void ProcessGroupState::check_peers(const ProcessWork& work) {
  const auto lock = attend();
  if (!work.operation()) return;
  throw_if_failed();
  try {
    backend->check_peers(*work.operation());
  } catch (...) {
    abort_with_current();
  }
}

std::vector<int> ProcessGroupState::missing(const ProcessWork& work) {
  const auto lock = attend();
  return work.operation() ? work.operation()->missing() : std::vector<int>{};
}

bool ProcessGroupState::sleep(const ProcessWork& work, std::chrono::microseconds limit) {
  const auto lock = attend();
  return work.arrived() || (work.operation() && work.operation()->sleep(limit));
}

std::unique_ptr<Backend> ProcessGroupState::split(const std::vector<int>& ranks) {
  const auto lock = attend();
  throw_if_failed();
  return backend->split(ranks, subgroup_name(backend->name(), ranks, splits_[ranks]++));
}

std::unique_ptr<Communicator> ProcessGroupState::split_below(const std::vector<int>& ranks) {
  const auto lock = attend();
  throw_if_failed();
  return backend->split_below(ranks);
}

void ProcessGroupState::abort(GroupFailure kind, const std::string& text) noexcept {
  const auto lock = attend();
  if (failure_) return;
  try {
    throw_failure(kind, text);
  } catch (...) {
    failure_ = std::current_exception();
  }
  backend->abort(kind, text);
}

void ProcessGroupState::close() noexcept {
  unregister_from_engine();
  if (!failure_ && !open_.empty())
    failure_ = std::make_exception_ptr(
        FailedPreconditionError("the communicator was destroyed before its collectives ended"));
  open_.clear();
}

void ProcessGroupState::advance(const ProcessWork* last, bool beyond) {
  throw_if_failed();
  try {
    backend->advance();
    for (std::size_t i = 0; i < open_.size();) {
      ProcessWork& work = *open_[i];
      const bool is_last = &work == last;
      if (!work.start()) break;  // later works must not overtake it
      if (work.advance()) {
        work.finish();
        open_.erase(open_.begin() + static_cast<std::ptrdiff_t>(i));
      } else {
        ++i;
      }
      if (is_last && !beyond) break;
    }
    // Works for which the failed rank has finished its part may still complete.
    if ((last ? !last->done() : !open_.empty()) && options.membership &&
        options.membership->failed() && !may_complete()) {
      backend->check_failure();
      options.membership->throw_failure();
    }
  } catch (...) {
    abort_with_current();
  }
  if (!last) note_attended();
}

bool ProcessGroupState::may_complete() noexcept {
  constexpr auto kLook = std::chrono::milliseconds(5), kQuiet = std::chrono::milliseconds(500);
  if (submitted_after_failure_) return false;
  const auto now = Clock::now();
  std::uint64_t steps = open_.size();
  for (const auto& work : open_)
    if (work->operation()) steps += work->operation()->steps();
  if (!last_data_ || last_data_->steps != steps)
    last_data_ = {.since = now, .checked = last_data_ ? last_data_->checked : now, .steps = steps};
  if (now - last_data_->since > kQuiet) return false;
  if (now - last_data_->checked < kLook) return true;
  last_data_->checked = now;
  try {
    for (const auto& work : open_)
      if (work->operation()) backend->check_peers(*work->operation());
  } catch (...) {
    return false;
  }
  return true;
}

bool ProcessGroupState::take(ProcessWork& work) {
  if (!work.arrived()) return false;
  try {
    work.finish();
  } catch (...) {
    abort_with_current();
  }
  std::erase_if(open_, [&](const auto& one) { return one.get() == &work; });
  return true;
}

bool ProcessGroupState::under_way() const {
  return !failure_ && backend->allows_any_thread() &&
         std::any_of(open_.begin(), open_.end(), [](const auto& work) { return !work->arrived(); });
}

// If a thread of the backend advances the works, this starts them once the device has computed
// their inputs, and sends errors to the peers.
bool ProcessGroupState::advance_unattended() noexcept {
  bool any = false;
  try {
    any = backend->advance();
    for (const auto& work : open_) {
      const bool started = work->started();
      if (!work->start()) break;
      any |= work->advance_if_possible() || !started;
    }
  } catch (...) {
    record_current();
  }
  return any;
}

// A peer reports what it has learnt from its connection to the job's server. This rank's connection
// may know better: that the peer has lost its one.
void ProcessGroupState::ask_membership(const std::exception& error) noexcept {
  if (!std::string_view(error.what()).starts_with("[membership]")) return;
  try {
    throw_first_failure(options.membership.get(), [] {});
  } catch (...) {
    failure_ = std::current_exception();
  }
}

void ProcessGroupState::record_current() noexcept {
  failure_ = std::current_exception();
  try {
    throw;
  } catch (const std::exception& error) {
    ask_membership(error);
    backend->abort(failure_of(error), error.what());
    if (options.membership) options.membership->note_failure(error.what());
  } catch (...) {
    backend->abort(GroupFailure::kAborted, "an exception of an unknown type");
  }
}

void ProcessGroupState::abort_with_current() {
  record_current();
  std::rethrow_exception(failure_);
}

std::string ProcessGroupState::describe_wait(const ProcessWork& work,
                                             std::chrono::milliseconds waited) const {
  const Collective& collective = work.collective();
  const std::string_view name = name_of(collective.signature.kind);
  const RankNames& names = backend->names();
  const std::string call = describe(collective.signature, collective.label, names);
  const auto time = waited.count();
  if (!work.operation())
    return fmt::format("[{}] {} did not compute what collective {} ({}) takes in {} ms", name,
                       device.full_name(), collective.sequence, call, time);
  if (is_message(collective.signature.kind))
    return fmt::format("[{}] rank {} waited {} ms for rank {}: {}", name, names[backend->rank()],
                       time, names[collective.signature.root], call);
  const std::vector<int> missing = work.operation()->missing();
  const std::vector<int> absent = absent_from(*work.operation());
  if (missing.empty())
    return fmt::format("[{}] collective {} ({}) did not end within {} ms{}", name,
                       collective.sequence, call, time,
                       absent.empty() ? ", though every rank has reached it" : "");
  std::vector<int> waiting;
  for (int rank = 0; rank < backend->size(); ++rank)
    if (std::find(absent.begin(), absent.end(), rank) == absent.end()) waiting.push_back(rank);
  std::string text = fmt::format("[{}] {} did not reach collective {} ({}) within {} ms", name,
                                 list_ranks(missing, names), collective.sequence, call, time);
  if (!waiting.empty())
    text += fmt::format("; {} {} waiting", list_ranks(waiting, names),
                        waiting.size() == 1 ? "is" : "are");
  return text;
}

std::vector<int> ProcessGroupState::absent_from(const BackendOperation& operation) const {
  std::vector<int> ranks = operation.missing();
  for (int rank = 0; rank < backend->size(); ++rank)
    if (!operation.knows(rank)) ranks.push_back(rank);
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

bool ProcessGroupState::tells_of_stall(const ProcessWork& work) const {
  const BackendOperation* operation = work.operation();
  return !operation || is_message(work.collective().signature.kind) ||
         (operation->knows(backend->rank()) &&
          is_first_waiting(backend->rank(), absent_from(*operation)));
}

void ProcessGroupState::check_while_waiting(const ProcessWork& work, Clock::time_point begin,
                                            Clock::time_point last) {
  try {
    if (work.operation()) backend->check_peers(*work.operation());
    const auto now = Clock::now();
    const auto limit = options.time_limit;
    if (now >= (work.operation() ? work.operation()->deadline(begin, limit) : begin + limit))
      throw DeadlineExceededError(describe_wait(work, limit));
    if (is_stalled(begin, last, now) && tells_of_stall(work))
      logging::warn(
          "{}",
          describe_wait(work, std::chrono::duration_cast<std::chrono::milliseconds>(now - begin)));
  } catch (...) {
    abort_with_current();
  }
}

// Spins, because peers in step arrive within microseconds. Then yields, so that a peer on the same
// core can run. Then sleeps until a peer wakes it, or naps for increasing times. Progress of the
// work resets the back-off.
void ProcessGroupState::wait(ProcessWork& work) {
  using std::chrono::microseconds;
  constexpr int kLook = 16;  // while spinning, reads the clock once per kLook rounds
  constexpr auto kYield = microseconds(2000), kFirstNap = microseconds(20);
  constexpr auto kSleep = microseconds(20'000);  // interval of checks of the membership
  constexpr auto kSpin = microseconds(50);
  const auto check = std::min<microseconds>(microseconds(100'000), options.time_limit);
  const auto lock = attend();
  if (take(work)) return;
  const auto begin = Clock::now();
  auto patient_since = begin, checked = begin;
  auto nap = kFirstNap;
  std::uint64_t steps = 0;
  for (int round = 0;; ++round) {
    advance(&work, round >= kLook);
    if (work.done()) return;
    if (round < kLook) {
      pause_core();
      continue;
    }
    const auto now = Clock::now();
    if (work.operation() && work.operation()->steps() != steps) {
      steps = work.operation()->steps();
      patient_since = now;
      nap = kFirstNap;
    }
    if (now - checked >= check) {
      check_while_waiting(work, begin, std::exchange(checked, now));
    }
    if (work.operation() && work.operation()->sleep(std::min(check, kSleep))) continue;
    const auto patience = now - patient_since;
    const bool oversubscribed = backend->oversubscribed();
    if (patience < kSpin && !oversubscribed) {
      round = 0;
      continue;
    }
    round = kLook;  // reads the clock every time
    const auto yields = [&] { return patience < kYield && core_yield_.yield(now); };
    // A peer that waits for this core does its own work best, with its data in its caches.
    if (oversubscribed && yields()) continue;
    if (work.operation() && work.operation()->help()) continue;
    if (!oversubscribed && yields()) continue;
    if (!backend->wait_for_peers(std::min(check, kSleep))) {
      std::this_thread::sleep_for(nap);
      nap = std::min(nap * 2, microseconds(1000));
    }
  }
}

}  // namespace tandem
