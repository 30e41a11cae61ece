#include "comm/hierarchical/pipeline.h"

#include <algorithm>
#include <mutex>
#include <numeric>
#include <thread>
#include <utility>

#include "comm/device_memory.h"
#include "comm/stall.h"
#include "core/log.h"
#include "core/profile.h"
#include "core/status.h"

namespace tandem::hierarchical {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;

constexpr auto kCheck = std::chrono::milliseconds(100);

std::unique_ptr<Communicator> all_again(Communicator& communicator) {
  std::vector<int> ranks(static_cast<std::size_t>(communicator.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return communicator.split(ranks);
}

// Steps enqueue work on the device. On a real GPU another thread may be capturing the stream into a
// CUDA graph.
bool can_share(const Pipeline& pipeline) {
  if (pipeline.inner->device().stream().execution() == Stream::Execution::kNative) return false;
  const Communicator* const all[] = {pipeline.inner.get(), pipeline.outer.get(), pipeline.out.get(),
                                     pipeline.options.direct.get()};
  return std::all_of(std::begin(all), std::end(all), [](const Communicator* communicator) {
    return !communicator || communicator->allows_any_thread();
  });
}

// The extra time for a link, so that a rank further inside times out first and can report its
// error.
Clock::duration grace(HierarchyLink link, std::chrono::milliseconds limit) {
  const auto once =
      std::clamp<std::chrono::milliseconds>(limit / 8, 2 * kCheck, std::chrono::milliseconds(5000));
  switch (link) {
    case HierarchyLink::kBetweenLeaders: return once;
    case HierarchyLink::kFromLeader: return 2 * once;
    default: return {};
  }
}

}  // namespace

HierarchyLayout make_hierarchy_layout(std::span<const int> sizes, int group, int place,
                                      std::vector<int> rank_at) {
  HierarchyLayout layout{
      .first = {0}, .group = group, .place = place, .rank_at = std::move(rank_at)};
  for (int size : sizes) layout.first.push_back(layout.first.back() + size);
  layout.index_of.resize(layout.rank_at.size());
  for (std::size_t i = 0; i < layout.rank_at.size(); ++i)
    layout.index_of[static_cast<std::size_t>(layout.rank_at[i])] = static_cast<int>(i);
  return layout;
}

bool PipelineStep::ready() const {
  return std::all_of(after.begin(), after.end(),
                     [](const PipelineStep* step) { return step->done; });
}

HierarchicalWork::HierarchicalWork(std::shared_ptr<Pipeline> pipeline, std::uint64_t sequence,
                                   Signature signature, Label label)
    : pipeline_(std::move(pipeline)),
      sequence_(sequence),
      signature_(signature),
      label_(std::move(label)) {}

const PipelineStep* HierarchicalWork::add(HierarchyLink link,
                                          std::function<std::shared_ptr<CollectiveWork>()> start,
                                          std::initializer_list<const PipelineStep*> after,
                                          std::function<void()> then) {
  PipelineStep& step = steps_.emplace_back();
  step.link = link;
  step.start = std::move(start);
  std::copy_if(after.begin(), after.end(), std::back_inserter(step.after),
               [](const PipelineStep* earlier) { return earlier != nullptr; });
  step.then = std::move(then);
  return &step;
}

void HierarchicalWork::add_message(HierarchyLink link, std::shared_ptr<CollectiveWork> message) {
  PipelineStep& step = steps_.emplace_back();
  step.link = link;
  step.work = std::move(message);
  step.started = Clock::now();
}

void* HierarchicalWork::scratch(std::size_t bytes) {
  const MemoryTagScope tag(MemoryTag::kWorkspace);
  kept_.push_back(allocate_on(pipeline_->inner->device(), bytes, name_of(signature_.kind).data(),
                              "memory to reduce the group's values"));
  return kept_.back().get();
}

bool HierarchicalWork::done() const {
  while (ended_ < steps_.size() && steps_[ended_].done) ++ended_;
  return ended_ == steps_.size();
}

const PipelineStep* HierarchicalWork::first_under_way() const {
  const auto found = std::find_if(steps_.begin(), steps_.end(),
                                  [](const PipelineStep& step) { return step.work && !step.done; });
  return found == steps_.end() ? nullptr : &*found;
}

void HierarchicalWork::wait() {
  if (pipeline_->test(*this)) return;
  const profile::Span span([&] {
    return profile::Event{.name = "wait for " + std::string(name_of(signature_.kind)),
                          .replica = pipeline_->layout.rank()};
  });
  pipeline_->wait(*this);
}

bool HierarchicalWork::test() { return pipeline_->test(*this); }
void HierarchicalWork::check_peers() { pipeline_->check_peers(*this); }
std::vector<int> HierarchicalWork::missing() const { return pipeline_->missing(*this); }

Pipeline::Pipeline(HierarchyLayout of, std::unique_ptr<Communicator> inside,
                   std::unique_ptr<Communicator> between, HierarchicalOptions with)
    : layout(std::move(of)),
      options(std::move(with)),
      inner(std::move(inside)),
      outer(std::move(between)),
      out(all_again(*inner)),
      allows_any_thread_(can_share(*this)) {}

Communicator* Pipeline::communicator(HierarchyLink link) const {
  switch (link) {
    case HierarchyLink::kToLeader: return inner.get();
    case HierarchyLink::kBetweenLeaders: return outer.get();
    case HierarchyLink::kFromLeader: return out.get();
    case HierarchyLink::kDirect: return options.direct.get();
  }
  return nullptr;
}

std::shared_ptr<CollectiveWork> Pipeline::submit(
    const std::function<std::shared_ptr<HierarchicalWork>()>& build) {
  const auto lock = attend();
  throw_if_failed();
  auto work = build();
  for (PipelineStep& step : work->steps_)
    (step.work ? messages_ : waiting_[static_cast<std::size_t>(step.link)]).push_back(&step);
  open_.push_back(work);
  advance();
  note_attended();
  hand_over_to_engine();
  return work;
}

void Pipeline::progress() {
  const auto lock = attend();
  advance();
  note_attended();
}

bool Pipeline::test(const HierarchicalWork& work) {
  const auto lock = attend();
  if (work.done()) return true;
  advance();
  note_attended();
  return work.done();
}

std::vector<int> Pipeline::missing(const HierarchicalWork& work) {
  const auto lock = attend();
  const PipelineStep* step = work.first_under_way();
  return step ? ranks_of(step->link, step->work->missing()) : std::vector<int>{};
}

std::unique_ptr<Communicator> Pipeline::split(
    const std::function<std::unique_ptr<Communicator>()>& make) {
  const auto lock = attend();
  throw_if_failed();
  return make();
}

bool Pipeline::under_way() const { return allows_any_thread_ && !failure_ && !open_.empty(); }

bool Pipeline::advance_unattended() noexcept {
  try {
    return advance();
  } catch (...) {  // the owner's next call throws it
    return true;
  }
}

bool Pipeline::advance() {
  throw_if_failed();
  try {
    for (std::size_t link = 0; link < kLinks; ++link)
      if (running_[link].size() > 1) progress(static_cast<HierarchyLink>(link));
    bool any = false;
    while (look_at_running() | start_ready()) any = true;
    if (any) std::erase_if(open_, [](const auto& work) { return work->done(); });
    return any;
  } catch (...) {
    abort_with_current();
  }
}

void Pipeline::progress(HierarchyLink link) {
  try {
    communicator(link)->progress();
  } catch (const Error&) {
    rethrow_from(link);
  }
}

bool Pipeline::start_ready() {
  bool any = false;
  for (std::size_t link = 0; link < kLinks; ++link)
    for (auto& queue = waiting_[link]; !queue.empty() && queue.front()->ready(); any = true) {
      PipelineStep& step = *queue.front();
      queue.pop_front();
      step.started = Clock::now();
      try {
        step.work = step.start();
      } catch (const Error&) {
        rethrow_from(step.link);
      }
      running_[link].push_back(&step);
    }
  return any;
}

// Collectives of a link end in order, messages in any order.
bool Pipeline::look_at_running() {
  bool any = false;
  for (auto& queue : running_)
    for (; !queue.empty() && look(*queue.front()); any = true) queue.pop_front();
  any |= std::erase_if(messages_, [this](PipelineStep* step) { return look(*step); }) > 0;
  return any;
}

bool Pipeline::look(PipelineStep& step) {
  try {
    if (!step.work->test()) return false;
  } catch (const Error&) {
    rethrow_from(step.link);
  }
  if (step.then) step.then();
  return step.done = true;
}

// Spins, then yields, then naps, as other waits do. If a backend's thread advances the step, sleeps
// until it has ended.
void Pipeline::wait(const HierarchicalWork& work) {
  const auto lock = attend();
  const auto begin = Clock::now();
  auto patient_since = begin, checked = begin;
  nap_ = microseconds(20);
  for (;;) {
    const bool any = advance();
    if (work.done()) return;
    const auto now = Clock::now();
    if (any) {
      patient_since = now;
      nap_ = microseconds(20);
      continue;
    }
    if (now - checked >= std::min<Clock::duration>(kCheck, options.time_limit)) {
      try {
        check(work, begin, std::exchange(checked, now));
      } catch (...) {
        abort_with_current();
      }
    }
    pass_time(work, now - patient_since);
  }
}

void Pipeline::pass_time(const HierarchicalWork& work, Clock::duration patience) {
  constexpr auto kSpin = microseconds(20), kYield = microseconds(1000);
  constexpr auto kLongestNap = microseconds(500);
  const PipelineStep* step = work.first_under_way();
  // Otherwise other links may need to be advanced.
  if (step && step->work->sleep(microseconds(100))) return;
  if (patience < kSpin) {
    pause_core();
  } else if (patience >= kYield || !core_yield_.yield(Clock::now())) {
    std::this_thread::sleep_for(nap_);
    nap_ = std::min(nap_ * 2, kLongestNap);
  }
}

void Pipeline::check(const HierarchicalWork& last, Clock::time_point since,
                     Clock::time_point looked) {
  check_all_peers();
  const auto now = Clock::now();
  for (const auto& work : open_) {
    for (const PipelineStep& step : work->steps_)
      if (step.work && !step.done &&
          now - std::max(since, step.started) >=
              options.time_limit + grace(step.link, options.time_limit))
        throw DeadlineExceededError(describe_wait(*work, step, options.time_limit));
    if (work.get() == &last) break;
  }
  if (is_stalled(since, looked, now))
    warn_of_stall(last, std::chrono::duration_cast<std::chrono::milliseconds>(now - since));
}

// The leader knows better whom the others of its group wait for.
void Pipeline::warn_of_stall(const HierarchicalWork& work, std::chrono::milliseconds waited) const {
  const PipelineStep* step = work.first_under_way();
  if (!step || step->link == HierarchyLink::kFromLeader) return;
  if (step->link == HierarchyLink::kDirect ||
      is_first_waiting(communicator(step->link)->rank(), step->work->missing()))
    logging::warn("{}", describe_wait(work, *step, waited));
}

void Pipeline::check_peers(const HierarchicalWork& work) {
  const auto lock = attend();
  if (!work.done()) check_all_peers();
}

void Pipeline::check_all_peers() {
  const auto check_one = [this](const PipelineStep* step) {
    try {
      step->work->check_peers();
    } catch (const Error&) {
      rethrow_from(step->link);
    }
  };
  try {
    for (const auto& queue : running_)
      if (!queue.empty()) check_one(queue.front());
    for (const PipelineStep* step : messages_) check_one(step);
  } catch (...) {
    abort_with_current();
  }
}

std::vector<int> Pipeline::ranks_of(HierarchyLink link, const std::vector<int>& ranks) const {
  std::vector<int> result;
  for (int rank : ranks) {
    const std::vector<int> members = link == HierarchyLink::kBetweenLeaders
                                         ? layout.ranks_of(rank)
                                         : layout.ranks_of(layout.group);
    if (link == HierarchyLink::kDirect)
      result.push_back(rank);
    else if (link == HierarchyLink::kBetweenLeaders)
      result.insert(result.end(), members.begin(), members.end());
    else
      result.push_back(members[static_cast<std::size_t>(rank)]);
  }
  std::sort(result.begin(), result.end());
  return result;
}

std::string Pipeline::describe_wait(const HierarchicalWork& work, const PipelineStep& step,
                                    std::chrono::milliseconds waited) const {
  const Signature& signature = work.signature();
  const std::string_view name = name_of(signature.kind);
  const std::string call = describe(signature, work.label(), names);
  const auto time = waited.count();
  if (signature.kind == CollectiveKind::kSend || signature.kind == CollectiveKind::kRecv)
    return fmt::format("{}[{}] rank {} waited {} ms for rank {}: {}", kErrorPrefix, name,
                       names[layout.rank()], time, names[signature.root], call);
  const std::vector<int> missing = ranks_of(step.link, step.work->missing());
  if (missing.empty())
    return fmt::format("{}[{}] collective {} ({}) did not end within {} ms", kErrorPrefix, name,
                       work.sequence(), call, time);
  return fmt::format("{}[{}] {} did not reach collective {} ({}) within {} ms", kErrorPrefix, name,
                     list_ranks(missing, names), work.sequence(), call, time);
}

// Converts an error of a link's communicator to one of the whole group. If the error's ranks are
// not numbered as in the whole group, its message says how they are.
void Pipeline::rethrow_from(HierarchyLink link) const {
  const auto message = [&](const char* text) {
    const std::string_view known(text);
    if (options.names || link == HierarchyLink::kDirect || known.starts_with(kErrorPrefix) ||
        known.starts_with("[membership]"))
      return std::string(known);
    std::vector<int> ranks;
    for (int group = 0; group < layout.groups(); ++group)
      ranks.push_back(layout.ranks_of(group).front());
    return link == HierarchyLink::kBetweenLeaders
               ? fmt::format("{}among the groups' first, {}, counted from 0: {}", kErrorPrefix,
                             list_ranks(ranks), known)
               : fmt::format("{}among {}, counted from 0: {}", kErrorPrefix,
                             list_ranks(layout.ranks_of(layout.group)), known);
  };
  try {
    throw;
  } catch (const InvalidArgumentError& error) {
    throw InvalidArgumentError(message(error.what()));
  } catch (const DeadlineExceededError& error) {
    throw DeadlineExceededError(message(error.what()));
  } catch (const AbortedError& error) {
    throw AbortedError(message(error.what()));
  }
}

void Pipeline::abort_with_current() {
  throw_if_failed();
  try {
    throw;
  } catch (const std::exception& error) {
    const std::string_view text = error.what();
    const bool marked = text.starts_with(kErrorPrefix) || text.starts_with("[membership]");
    abort_with(std::current_exception(), failure_of(error),
               marked ? std::string(text) : std::string(kErrorPrefix).append(text));
  }
  std::rethrow_exception(failure_);
}

void Pipeline::abort_with(std::exception_ptr error, GroupFailure failure,
                          const std::string& text) noexcept {
  if (failure_) return;
  failure_ = std::move(error);
  inner->abort(failure, text);
  out->abort(failure, text);
  if (outer) outer->abort(failure, text);
  if (options.direct) options.direct->abort(failure, text);
}

void Pipeline::abort(GroupFailure failure, const std::string& text) noexcept {
  const auto lock = attend();
  try {
    throw_failure(failure, text);
  } catch (...) {
    abort_with(std::current_exception(), failure, text);
  }
}

void Pipeline::close() noexcept {
  unregister_from_engine();
  if (!failure_ && !open_.empty())
    failure_ = std::make_exception_ptr(
        FailedPreconditionError("the communicator was destroyed before its collectives ended"));
  // A failed collective may be impossible to cancel: MPI may still write to its memory.
  static auto* const kept_for_good = new std::vector<std::shared_ptr<void>>;
  static std::mutex mutex;
  if (failure_) {
    const std::lock_guard lock(mutex);
    for (const auto& work : open_)
      kept_for_good->insert(kept_for_good->end(), work->kept_.begin(), work->kept_.end());
  }
  for (auto& queue : waiting_) queue.clear();
  for (auto& queue : running_) queue.clear();
  messages_.clear();
  open_.clear();
}

}  // namespace tandem::hierarchical
