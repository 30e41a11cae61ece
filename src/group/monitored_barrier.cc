// A barrier by way of the store, which leaves the group's collectives alone when it fails.
#include "comm/signature.h"
#include "core/status.h"
#include "graph/graph.h"
#include "group/process_group_impl.h"

namespace tandem::comm {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr auto kRoundTrip = std::chrono::seconds(5);  // from rank 0's judgement to the others

class MonitoredBarrier {
 public:
  MonitoredBarrier(ProcessGroupImpl& group, milliseconds limit)
      : group_(group),
        store_(*group.job()->store()),
        limit_(limit),
        prefix_(fmt::format("monitored_barrier/{}/{}", group.name(), group.next_barrier())) {}

  void run() {
    const std::string verdict = group_.rank() == 0 ? judge() : ask();
    if (store_.add(prefix_ + "/through", 1) == group_.size()) {
      for (int rank = 0; rank < group_.size(); ++rank) store_.remove(arrival_key(rank));
      store_.remove(verdict_key());
      store_.remove(prefix_ + "/through");
    }
    if (!verdict.empty()) throw DeadlineExceededError(verdict);
  }

 private:
  std::string arrival_key(int rank) const { return fmt::format("{}/{}", prefix_, rank); }
  std::string verdict_key() const { return prefix_ + "/verdict"; }

  std::string text_for(const std::vector<int>& missing) const {
    std::vector<int> named;
    for (const int rank : missing) named.push_back(group_.ranks()[static_cast<std::size_t>(rank)]);
    return fmt::format("[monitored_barrier] {} failed to pass monitored_barrier in {} ms",
                       list_ranks(named), limit_.count());
  }

  bool has_arrived(int rank, Clock::time_point deadline) {
    try {
      store_.get(arrival_key(rank), deadline);
      return true;
    } catch (const DeadlineExceededError&) {
      return false;
    }
  }

  // Rank 0 sees who comes, and tells the others.
  std::string judge() {
    const Clock::time_point deadline = Clock::now() + limit_;
    store_.set(arrival_key(0), "");
    std::vector<int> missing;
    for (int rank = 1; rank < group_.size(); ++rank)
      if (!has_arrived(rank, deadline)) missing.push_back(rank);
    const std::string text = missing.empty() ? "" : text_for(missing);
    store_.set(verdict_key(), text);
    return text;
  }

  std::string ask() {
    store_.set(arrival_key(group_.rank()), "");
    if (!has_arrived(0, Clock::now() + limit_)) throw DeadlineExceededError(text_for({0}));
    // From now on rank 0 waits for the others as long as this one has waited for it at most.
    return store_.get(verdict_key(), Clock::now() + limit_ + kRoundTrip);
  }

  ProcessGroupImpl& group_;
  Store& store_;
  milliseconds limit_;
  std::string prefix_;
};

}  // namespace

void monitored_barrier(const MonitoredBarrierOptions& options) {
  const auto group = detail::group_of(options.group, "monitored_barrier");
  group->require_use("monitored_barrier");
  if (building)
    throw UnimplementedError("[monitored_barrier] cannot be part of a traced function or graph");
  MonitoredBarrier(*group, options.timeout.value_or(group->time_limit())).run();
}

}  // namespace tandem::comm
