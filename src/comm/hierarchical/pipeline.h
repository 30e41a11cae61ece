// Runs each collective of a hierarchy as steps on several communicators. A step starts when the
// steps that it depends on have ended; no call blocks.
#pragma once

#include <array>
#include <chrono>
#include <deque>
#include <exception>
#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "comm/communicator.h"
#include "comm/hierarchical/hierarchical_options.h"
#include "comm/process/announcement.h"
#include "comm/process/progress_engine.h"
#include "comm/signature.h"
#include "core/core_yield.h"

namespace tandem::hierarchical {

// Which rank is at which position of a hierarchy. Ranks have two numbers: `index` counts by group
// and position, `rank` is the caller's. They differ if a group was split off with its ranks in
// another order.
struct HierarchyLayout {
  std::vector<int> first;  // by group: number of ranks in earlier groups; last: number of all ranks
  int group = 0;           // of this rank
  int place = 0;           // this rank's position in its group
  std::vector<int> rank_at;   // by index
  std::vector<int> index_of;  // by rank

  int groups() const { return static_cast<int>(first.size()) - 1; }
  int size() const { return first.back(); }
  int group_size(int of) const { return at(first, of + 1) - at(first, of); }
  int group_size() const { return group_size(group); }
  int index() const { return at(first, group) + place; }
  int rank() const { return at(rank_at, index()); }
  // A group's first rank takes part in collectives between the groups.
  bool leads() const { return place == 0; }

  int group_of(int rank) const {
    int result = 0;
    while (at(first, result + 1) <= at(index_of, rank)) ++result;
    return result;
  }
  int place_of(int rank) const { return at(index_of, rank) - at(first, group_of(rank)); }
  // The ranks of a group, as callers number them.
  std::vector<int> ranks_of(int of) const {
    return {rank_at.begin() + at(first, of), rank_at.begin() + at(first, of + 1)};
  }

 private:
  static int at(const std::vector<int>& list, int i) { return list[static_cast<std::size_t>(i)]; }
};

// `sizes`: of the groups. `rank_at`: rank by index.
HierarchyLayout make_hierarchy_layout(std::span<const int> sizes, int group, int place,
                                      std::vector<int> rank_at);

// The communicator that a step runs on. Every rank of one starts the same steps on it in the same
// order, whatever else is slow. Reducing towards the leader and broadcasting from it are therefore
// separate communicators.
enum class HierarchyLink {
  kToLeader,        // inside the group, towards its leader
  kBetweenLeaders,  // between the groups' leaders
  kFromLeader,      // inside the group, from its leader
  kDirect,          // between any two ranks
};
constexpr std::size_t kLinks = 4;

// Prefix of error messages that name ranks of the whole group.
inline constexpr std::string_view kErrorPrefix = "[hierarchical] ";

struct PipelineStep {
  HierarchyLink link = HierarchyLink::kToLeader;
  std::function<std::shared_ptr<CollectiveWork>()> start;
  std::vector<const PipelineStep*> after;  // steps that must have ended before
  std::function<void()> then;            // this rank's action when the step has ended; may be empty
  std::shared_ptr<CollectiveWork> work;  // null: not started
  std::chrono::steady_clock::time_point started = {};
  bool done = false;

  bool ready() const;
};

class Pipeline;

// A collective or message of the whole group.
class HierarchicalWork final : public CollectiveWork {
 public:
  HierarchicalWork(std::shared_ptr<Pipeline> pipeline, std::uint64_t sequence, Signature signature,
                   Label label);

  // The step runs after those in `after` (null ones are ignored) and after earlier steps of the
  // link.
  const PipelineStep* add(HierarchyLink link,
                          std::function<std::shared_ptr<CollectiveWork>()> start,
                          std::initializer_list<const PipelineStep*> after = {},
                          std::function<void()> then = {});
  // Adds a message that was started already, independent of the link's steps.
  void add_message(HierarchyLink link, std::shared_ptr<CollectiveWork> message);
  // Device memory that lives as long as the work.
  void* scratch(std::size_t bytes);

  // For Pipeline only.
  bool done() const;
  const PipelineStep* first_under_way() const;

  const Signature& signature() const { return signature_; }
  std::uint64_t sequence() const { return sequence_; }
  const Label& label() const { return label_; }
  // This rank's announcement, those of its group, and those between the groups' leaders.
  Announcement mine;
  std::vector<Announcement> inside, between;

  void wait() override;
  bool test() override;
  void check_peers() override;
  std::vector<int> missing() const override;

 private:
  friend class Pipeline;
  std::shared_ptr<Pipeline> pipeline_;
  std::uint64_t sequence_;
  Signature signature_;
  Label label_;
  std::deque<PipelineStep> steps_;
  std::vector<std::shared_ptr<void>> kept_;
  mutable std::size_t ended_ = 0;  // number of leading steps that have ended
};

// The state that a rank's works share. The owner calls its functions. Between these calls the
// progress engine starts steps that are ready, if the communicators allow other threads.
class Pipeline final : public ProgressEngine::Client {
 public:
  Pipeline(HierarchyLayout layout, std::unique_ptr<Communicator> inner,
           std::unique_ptr<Communicator> outer, HierarchicalOptions options);

  // Starts the work that `build` builds. The engine does not touch the communicators meanwhile.
  std::shared_ptr<CollectiveWork> submit(
      const std::function<std::shared_ptr<HierarchicalWork>()>& build);
  // Starts the steps that are ready, and checks which have ended.
  void progress();
  bool test(const HierarchicalWork& work);
  void wait(const HierarchicalWork& work);
  void check_peers(const HierarchicalWork& work);
  std::vector<int> missing(const HierarchicalWork& work);
  // Makes a communicator from those below. The caller owns it.
  std::unique_ptr<Communicator> split(const std::function<std::unique_ptr<Communicator>()>& make);
  // Aborts the group with this error, unless it has failed already.
  void abort(GroupFailure failure, const std::string& text) noexcept;
  // Called when the communicator is destroyed: breaks the ownership cycle of works and pipeline.
  void close() noexcept;
  // Whether a thread other than the owner's may start steps.
  bool allows_any_thread() const { return allows_any_thread_; }

  const HierarchyLayout layout;
  const HierarchicalOptions options;
  const RankNames names = options.names.value_or(RankNames());
  const std::unique_ptr<Communicator> inner, outer, out;
  // For the owner's thread only.
  std::uint64_t next_sequence = 0;
  Label label;

 private:
  bool under_way() const override;
  bool advance_unattended() noexcept override;
  Communicator* communicator(HierarchyLink link) const;
  // Converts a link's ranks to ranks of the whole group.
  std::vector<int> ranks_of(HierarchyLink link, const std::vector<int>& ranks) const;
  // The functions below REQUIRE attend().
  void throw_if_failed() const {
    if (failure_) std::rethrow_exception(failure_);
  }
  bool advance();  // returns whether any step has started or ended
  bool look(PipelineStep& step);
  void progress(HierarchyLink link);
  bool start_ready();
  bool look_at_running();
  // `since`: when the rank began to wait; `looked`: the time of the last check.
  void check(const HierarchicalWork& last, std::chrono::steady_clock::time_point since,
             std::chrono::steady_clock::time_point looked);
  void warn_of_stall(const HierarchicalWork& work, std::chrono::milliseconds waited) const;
  void check_all_peers();
  void pass_time(const HierarchicalWork& work, std::chrono::steady_clock::duration patience);
  std::string describe_wait(const HierarchicalWork& work, const PipelineStep& step,
                            std::chrono::milliseconds waited) const;
  [[noreturn]] void rethrow_from(HierarchyLink link) const;
  [[noreturn]] void abort_with_current();
  void abort_with(std::exception_ptr error, GroupFailure failure, const std::string& text) noexcept;

  const bool allows_any_thread_;
  std::array<std::deque<PipelineStep*>, kLinks> waiting_, running_;
  std::deque<PipelineStep*> messages_;
  std::deque<std::shared_ptr<HierarchicalWork>> open_;  // not done, in the order of the calls
  std::exception_ptr failure_;
  std::chrono::microseconds nap_{20};
  CoreYield core_yield_;
};

}  // namespace tandem::hierarchical
