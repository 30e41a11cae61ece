#include "comm/hierarchical/hierarchical_communicator.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <numeric>
#include <utility>

#include "comm/checked_communicator.h"
#include "comm/hierarchical/build_steps.h"
#include "comm/hierarchical/hierarchy.h"
#include "comm/process/process_communicator.h"
#include "core/status.h"

namespace tandem::hierarchical {
namespace {

using Clock = std::chrono::steady_clock;

std::unique_ptr<Communicator> all_again(Communicator& communicator) {
  std::vector<int> ranks(static_cast<std::size_t>(communicator.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return communicator.split(ranks);
}

// Steps enqueue work on the device. On a real GPU another thread may be capturing the stream into a
// CUDA graph.
bool can_share(const Hierarchy& hierarchy) {
  if (hierarchy.inner->device().stream().execution() == Stream::Execution::kNative) return false;
  const Communicator* const all[] = {hierarchy.inner.get(), hierarchy.outer.get(),
                                     hierarchy.out.get(), hierarchy.direct.get()};
  return std::all_of(std::begin(all), std::end(all), [](const Communicator* communicator) {
    return !communicator || communicator->allows_any_thread();
  });
}

// Whether the tree over all ranks equals the tree over the groups applied to the trees inside them.
bool supports_tree_sum(const HierarchyLayout& layout) {
  const int size = layout.group_size(0);
  const int last = layout.groups() - 1;
  bool fits = (size & (size - 1)) == 0 && layout.group_size(last) <= size;
  for (int group = 0; group < last; ++group) fits = fits && layout.group_size(group) == size;
  return fits && std::is_sorted(layout.rank_at.begin(), layout.rank_at.end());
}

// The extra time for a link, so that a rank further inside times out first and can report its
// error.
Clock::duration grace(HierarchyLink link, std::chrono::milliseconds limit) {
  const auto once = std::clamp<std::chrono::milliseconds>(limit / 8, std::chrono::milliseconds(200),
                                                          std::chrono::milliseconds(5000));
  switch (link) {
    case HierarchyLink::kBetweenLeaders: return once;
    case HierarchyLink::kFromLeader: return 2 * once;
    default: return {};
  }
}

// One rank of a hierarchy. The operations share its queues of steps.
class HierarchicalBackend final : public Backend {
 public:
  explicit HierarchicalBackend(Hierarchy hierarchy)
      : hierarchy_(std::move(hierarchy)), allows_any_thread_(can_share(hierarchy_)) {}

  int rank() const override { return hierarchy_.layout.rank(); }
  int size() const override { return hierarchy_.layout.size(); }
  const std::string& name() const override { return name_; }
  const RankNames& names() const override { return names_; }
  bool supports_device_memory() const override { return true; }
  bool allows_any_thread() const override { return allows_any_thread_; }
  bool oversubscribed() const override { return oversubscribed_; }

  void check(const CheckedCall& call) const override;
  std::unique_ptr<BackendOperation> start(const Collective& collective) override;
  bool advance() override;
  void check_peers(const BackendOperation& operation) override;
  void abort(GroupFailure failure, const std::string& text) noexcept override;
  // Memory for the reduction inside the group; the broadcast back copies from it.
  std::shared_ptr<void> allocate(std::size_t bytes) override {
    return hierarchy_.inner->allocate(bytes);
  }
  std::unique_ptr<Communicator> split_below(std::span<const int> ranks) override;
  std::unique_ptr<Backend> split(std::span<const int> ranks, const std::string& name) override;

 private:
  friend class HierarchicalOperation;
  Communicator* communicator(HierarchyLink link) const;
  // Converts a link's ranks to ranks of the whole group.
  std::vector<int> ranks_of(HierarchyLink link, const std::vector<int>& ranks) const;
  // Returns act(), or throws its error as one of the whole group.
  template <class Act>
  auto with_errors_of(HierarchyLink link, const Act& act) const {
    try {
      return act();
    } catch (const Error&) {
      rethrow_from(link);
    }
  }
  [[noreturn]] void rethrow_from(HierarchyLink link) const;
  // The step that `step`, which has not ended, waits for; itself if it has started. Null after a
  // failure at most.
  const HierarchyStep* blocking(const HierarchyStep* step) const;
  void forget(const HierarchySteps& steps);
  void begin(HierarchyStep& step);
  bool look(HierarchyStep& step);
  bool start_ready();
  bool look_at_running();

  const Hierarchy hierarchy_;
  const std::string name_ = "hierarchical";  // those below have names of their own
  const RankNames names_ = hierarchy_.names.value_or(RankNames());
  const bool allows_any_thread_;
  const bool oversubscribed_ =  // a group is on one host
      hierarchy_.layout.group_size() > sysconf(_SC_NPROCESSORS_ONLN);
  std::array<std::deque<HierarchyStep*>, kLinks> waiting_, running_;
  std::deque<HierarchyStep*> messages_;
  std::uint64_t changes_ = 0;  // steps that have started or ended
};

class HierarchicalOperation final : public BackendOperation {
 public:
  HierarchicalOperation(HierarchicalBackend& backend, std::unique_ptr<HierarchySteps> steps)
      : backend_(backend), steps_(std::move(steps)) {}
  ~HierarchicalOperation() override {
    if (steps_->first_open()) backend_.forget(*steps_);
  }

  // The backend has advanced all steps but those of a new operation.
  bool advance() override {
    if (std::exchange(new_, false)) backend_.advance();
    return !steps_->first_open();
  }
  // Briefly, because steps of other links may need to be started.
  bool sleep(std::chrono::microseconds limit) const override {
    const HierarchyStep* step = steps_->first_under_way();
    return step && step->work->sleep(std::min(limit, std::chrono::microseconds(100)));
  }
  std::uint64_t steps() const override { return backend_.changes_; }
  std::vector<int> missing() const override {
    const HierarchyStep* step = awaited();
    return step ? backend_.ranks_of(step->link, step->work->missing()) : std::vector<int>{};
  }
  // The leader knows better whom the others of its group wait for.
  bool knows(int rank) const override {
    const HierarchyStep* step = awaited();
    const HierarchyLayout& layout = backend_.hierarchy_.layout;
    if (!step || step->link == HierarchyLink::kFromLeader) return false;
    if (step->link == HierarchyLink::kToLeader) return layout.group_of(rank) == layout.group;
    return step->link == HierarchyLink::kDirect || layout.place_of(rank) == 0;
  }
  Clock::time_point deadline(Clock::time_point begin,
                             std::chrono::milliseconds limit) const override {
    const HierarchyStep* step = awaited();
    return step ? std::max(begin, step->started) + limit + grace(step->link, limit) : begin + limit;
  }

 private:
  const HierarchyStep* awaited() const {
    if (const HierarchyStep* step = steps_->first_under_way()) return step;
    const HierarchyStep* step = steps_->first_open();
    return step ? backend_.blocking(step) : nullptr;
  }

  HierarchicalBackend& backend_;
  const std::unique_ptr<HierarchySteps> steps_;
  bool new_ = true;
};

Communicator* HierarchicalBackend::communicator(HierarchyLink link) const {
  switch (link) {
    case HierarchyLink::kToLeader: return hierarchy_.inner.get();
    case HierarchyLink::kBetweenLeaders: return hierarchy_.outer.get();
    case HierarchyLink::kFromLeader: return hierarchy_.out.get();
    case HierarchyLink::kDirect: return hierarchy_.direct.get();
  }
  return nullptr;
}

void HierarchicalBackend::check(const CheckedCall& call) const {
  const HierarchyLayout& layout = hierarchy_.layout;
  const bool message = call.kind == CollectiveKind::kSend || call.kind == CollectiveKind::kRecv;
  if (!hierarchy_.direct && (call.kind == CollectiveKind::kAllToAll ||
                             (message && layout.group_of(call.root) != layout.group)))
    fail<FailedPreconditionError>(
        "[{}] this hierarchical communicator has no direct communicator of all ranks",
        name_of(call.kind));
  if (call.op == ReduceOp::kTreeSum && !supports_tree_sum(layout))
    throw UnimplementedError(
        "[all_reduce] a tree sum over groups that do not have 1, 2, 4, ... ranks each, as many in "
        "each, in the order of the ranks: give every process as many replicas, 1, 2, 4, ...");
}

std::unique_ptr<BackendOperation> HierarchicalBackend::start(const Collective& collective) {
  auto steps = build_steps(hierarchy_, collective);
  for (HierarchyStep& step : steps->all) {
    if (step.message) begin(step);
    (step.message ? messages_ : waiting_[static_cast<std::size_t>(step.link)]).push_back(&step);
  }
  return std::make_unique<HierarchicalOperation>(*this, std::move(steps));
}

bool HierarchicalBackend::advance() {
  for (std::size_t i = 0; i < kLinks; ++i) {
    const auto link = static_cast<HierarchyLink>(i);
    if (running_[i].size() > 1) with_errors_of(link, [&] { communicator(link)->progress(); });
  }
  bool any = false;
  while (look_at_running() | start_ready()) any = true;
  return any;
}

bool HierarchicalBackend::start_ready() {
  bool any = false;
  for (std::size_t link = 0; link < kLinks; ++link)
    for (auto& queue = waiting_[link]; !queue.empty() && !queue.front()->awaited(); any = true) {
      HierarchyStep& step = *queue.front();
      queue.pop_front();
      begin(step);
      running_[link].push_back(&step);
    }
  return any;
}

// Collectives of a link end in order, messages in any order.
bool HierarchicalBackend::look_at_running() {
  bool any = false;
  for (auto& queue : running_)
    for (; !queue.empty() && look(*queue.front()); any = true) queue.pop_front();
  any |= std::erase_if(messages_, [this](HierarchyStep* step) { return look(*step); }) > 0;
  return any;
}

void HierarchicalBackend::begin(HierarchyStep& step) {
  step.started = Clock::now();
  step.work = with_errors_of(step.link, step.start);
  ++changes_;
}

bool HierarchicalBackend::look(HierarchyStep& step) {
  if (!with_errors_of(step.link, [&] { return step.work->test(); })) return false;
  if (step.then) step.then();
  ++changes_;
  return step.done = true;
}

const HierarchyStep* HierarchicalBackend::blocking(const HierarchyStep* step) const {
  while (step && !step->work) {
    const auto link = static_cast<std::size_t>(step->link);
    step = running_[link].empty() ? waiting_[link].front()->awaited() : running_[link].front();
  }
  return step;
}

void HierarchicalBackend::forget(const HierarchySteps& steps) {
  const auto is_of = [&](const HierarchyStep* step) {
    return std::any_of(steps.all.begin(), steps.all.end(),
                       [&](const HierarchyStep& one) { return &one == step; });
  };
  for (auto& queue : waiting_) std::erase_if(queue, is_of);
  for (auto& queue : running_) std::erase_if(queue, is_of);
  std::erase_if(messages_, is_of);
}

void HierarchicalBackend::check_peers(const BackendOperation&) {
  const auto check_one = [this](const HierarchyStep* step) {
    with_errors_of(step->link, [&] { step->work->check_peers(); });
  };
  for (const auto& queue : running_)
    if (!queue.empty()) check_one(queue.front());
  for (const HierarchyStep* step : messages_) check_one(step);
}

std::vector<int> HierarchicalBackend::ranks_of(HierarchyLink link,
                                               const std::vector<int>& ranks) const {
  const HierarchyLayout& layout = hierarchy_.layout;
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

// Converts an error of a link's communicator to one of the whole group. If the error's ranks are
// not numbered as in the whole group, its message says how they are.
void HierarchicalBackend::rethrow_from(HierarchyLink link) const {
  const HierarchyLayout& layout = hierarchy_.layout;
  const auto message = [&](const char* text) {
    const std::string_view known(text);
    if (hierarchy_.names || link == HierarchyLink::kDirect || known.starts_with(kErrorPrefix) ||
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

void HierarchicalBackend::abort(GroupFailure failure, const std::string& text) noexcept {
  const bool marked = text.starts_with(kErrorPrefix) || text.starts_with("[membership]");
  const std::string reported = marked ? text : std::string(kErrorPrefix) + text;
  for (const auto link : {HierarchyLink::kToLeader, HierarchyLink::kFromLeader,
                          HierarchyLink::kBetweenLeaders, HierarchyLink::kDirect})
    if (Communicator* const one = communicator(link)) one->abort(failure, reported);
}

// The positions in each group that are in `ranks`, in order. Groups without any are absent.
std::map<int, std::vector<int>> places_by_group(const HierarchyLayout& layout,
                                                std::span<const int> ranks) {
  std::map<int, std::vector<int>> groups;
  for (int rank : ranks) groups[layout.group_of(rank)].push_back(layout.place_of(rank));
  for (auto& [group, places] : groups) std::sort(places.begin(), places.end());
  return groups;
}

bool every_group_leads(const std::map<int, std::vector<int>>& groups) {
  return std::all_of(groups.begin(), groups.end(),
                     [](const auto& group) { return group.second.front() == 0; });
}

std::unique_ptr<Backend> make_backend(HierarchyLayout layout, std::unique_ptr<Communicator> inner,
                                      std::unique_ptr<Communicator> outer,
                                      HierarchicalOptions options) {
  auto out = all_again(*inner);
  return std::make_unique<HierarchicalBackend>(Hierarchy{.layout = std::move(layout),
                                                         .piece_bytes = options.piece_bytes,
                                                         .names = std::move(options.names),
                                                         .direct = std::move(options.direct),
                                                         .inner = std::move(inner),
                                                         .outer = std::move(outer),
                                                         .out = std::move(out)});
}

std::unique_ptr<Communicator> HierarchicalBackend::split_below(std::span<const int> ranks) {
  const HierarchyLayout& layout = hierarchy_.layout;
  const auto groups = places_by_group(layout, ranks);
  std::vector<int> order;
  if (groups.size() == 1) {
    for (int rank : ranks) order.push_back(layout.place_of(rank));
    return hierarchy_.inner->split(order);
  }
  const bool all_lead = every_group_leads(groups);
  if (!all_lead && !hierarchy_.direct)
    fail<FailedPreconditionError>(
        "[split] this hierarchical communicator has no direct communicator of all ranks, so "
        "that ranks of several groups need the groups' first ranks among them");
  if (groups.size() < ranks.size()) return nullptr;
  // One rank per group.
  if (!all_lead) return hierarchy_.direct->split(ranks);
  for (int rank : ranks) order.push_back(layout.group_of(rank));
  return hierarchy_.outer->split(order);
}

std::unique_ptr<Backend> HierarchicalBackend::split(std::span<const int> ranks,
                                                    const std::string&) {
  const HierarchyLayout& layout = hierarchy_.layout;
  const auto groups = places_by_group(layout, ranks);
  std::vector<int> sizes, group_order, first_ranks, rank_at;
  int mine = 0;
  for (const auto& [group, places] : groups) {
    if (group == layout.group) mine = static_cast<int>(sizes.size());
    sizes.push_back(static_cast<int>(places.size()));
    group_order.push_back(group);
    const std::vector<int> members = layout.ranks_of(group);
    first_ranks.push_back(members[static_cast<std::size_t>(places.front())]);
    for (int place : places)
      rank_at.push_back(static_cast<int>(
          std::find(ranks.begin(), ranks.end(), members[static_cast<std::size_t>(place)]) -
          ranks.begin()));
  }
  Communicator* const direct = hierarchy_.direct.get();
  auto inner = hierarchy_.inner->split(groups.at(layout.group));
  std::unique_ptr<Communicator> outer;
  if (inner->rank() == 0)
    outer = every_group_leads(groups) ? hierarchy_.outer->split(group_order)
                                      : direct->split(first_ranks);
  const auto& names = hierarchy_.names;
  auto direct_part = direct ? direct->split(ranks) : nullptr;
  HierarchyLayout part = make_hierarchy_layout(sizes, mine, inner->rank(), std::move(rank_at));
  return make_backend(std::move(part), std::move(inner), std::move(outer),
                      {.piece_bytes = hierarchy_.piece_bytes,
                       .names = names ? std::optional(names->of(ranks)) : std::nullopt,
                       .direct = std::move(direct_part)});
}

// Exchanges the sizes of the groups and this rank's group between all ranks.
struct GroupSizes {
  std::vector<int> sizes;
  int group = 0;
};

GroupSizes agree_on_sizes(Communicator& inner, Communicator* outer) {
  GroupSizes result;
  std::vector<int> counts(static_cast<std::size_t>(inner.size()) * 2);
  if (outer) {
    result.sizes.resize(static_cast<std::size_t>(outer->size()));
    const int own = inner.size();
    outer->exchange(&own, sizeof(own), result.sizes.data());
  }
  const int mine[] = {static_cast<int>(result.sizes.size()), outer ? outer->rank() : 0};
  inner.exchange(mine, sizeof(mine), counts.data());
  const auto groups = static_cast<std::size_t>(counts[0]);
  result.group = counts[1];
  result.sizes.resize(groups);
  std::vector<int> all(groups * static_cast<std::size_t>(inner.size()));
  inner.exchange(result.sizes.data(), groups * sizeof(int), all.data());
  result.sizes.assign(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(groups));
  return result;
}

}  // namespace
}  // namespace tandem::hierarchical

namespace tandem {

std::unique_ptr<Communicator> make_hierarchical_communicator(std::unique_ptr<Communicator> inner,
                                                             std::unique_ptr<Communicator> outer,
                                                             HierarchicalOptions options) {
  if (!inner || (outer != nullptr) != (inner->rank() == 0))
    fail<InvalidArgumentError>(
        "[hierarchical] expected a communicator between the groups on the first rank of each "
        "group, "
        "and on no other");
  if (outer && &outer->device() != &inner->device())
    fail<InvalidArgumentError>("[hierarchical] expected communicators of one device, got {} and {}",
                               inner->device().full_name(), outer->device().full_name());
  hierarchical::GroupSizes found;
  try {
    found = hierarchical::agree_on_sizes(*inner, outer.get());
  } catch (const Error& error) {
    inner->abort(failure_of(error), error.what());
    throw;
  }
  std::vector<int> counted(
      static_cast<std::size_t>(std::accumulate(found.sizes.begin(), found.sizes.end(), 0)));
  std::iota(counted.begin(), counted.end(), 0);
  std::vector<int> rank_at = options.ranks.empty() ? counted : std::move(options.ranks);
  if (!std::is_permutation(rank_at.begin(), rank_at.end(), counted.begin(), counted.end()))
    fail<InvalidArgumentError>("[hierarchical] expected the ranks 0 to {} in some order, got {}",
                               counted.size() - 1, list_ranks(rank_at));
  // A single group, or one rank per group: one of the two communicators suffices.
  if (found.sizes.size() == 1) return rank_at == counted ? std::move(inner) : inner->split(rank_at);
  if (rank_at.size() == found.sizes.size())
    return rank_at == counted ? std::move(outer) : outer->split(rank_at);
  hierarchical::HierarchyLayout layout = hierarchical::make_hierarchy_layout(
      found.sizes, found.group, inner->rank(), std::move(rank_at));
  if (options.direct &&
      (options.direct->rank() != layout.rank() || options.direct->size() != layout.size()))
    fail<InvalidArgumentError>(
        "[hierarchical] the direct communicator has rank {} of {} for what is rank {} of {}",
        options.direct->rank(), options.direct->size(), layout.rank(), layout.size());
  DeviceImpl& device = inner->device();
  const std::chrono::milliseconds limit = options.time_limit;
  return make_process_communicator(hierarchical::make_backend(std::move(layout), std::move(inner),
                                                              std::move(outer), std::move(options)),
                                   device, {.time_limit = limit});
}

}  // namespace tandem
