// Collectives of two communicators as one: steps that start when others have ended, without anyone
// waiting.
#pragma once

#include <array>
#include <chrono>
#include <deque>
#include <exception>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string_view>
#include <vector>

#include "comm/communicator.h"
#include "comm/hierarchical/hierarchical_communicator.h"
#include "comm/hierarchical/layout.h"
#include "comm/process/announcement.h"
#include "comm/process/progress_engine.h"
#include "comm/signature.h"
#include "core/core_yield.h"

namespace tandem::hierarchical {

// Every rank of a lane's communicator starts the same steps on it in the same order, whatever else
// takes its time: that is why the way in and the way out of a group are two communicators.
enum class Lane {
  kIn,      // inside the group, on the way to its first rank
  kAcross,  // between the groups
  kOut,     // inside the group, on the way back
  kDirect,  // from any rank to any other
};
constexpr std::size_t kLanes = 4;

// Texts of errors that name ranks of the whole begin so.
inline constexpr std::string_view kMark = "[hierarchical] ";

struct Step {
  Lane lane = Lane::kIn;
  std::function<std::shared_ptr<Work>()> start;
  std::vector<const Step*> after;  // those that must have ended before
  std::function<void()> then;      // what this rank does when it has ended; may be empty
  std::shared_ptr<Work> work;      // null: not started
  std::chrono::steady_clock::time_point started = {};
  bool done = false;

  bool ready() const;
};

class Pipeline;

// A collective or message of the whole.
class HierarchicalWork final : public Work {
 public:
  HierarchicalWork(std::shared_ptr<Pipeline> pipeline, std::uint64_t sequence, Signature signature,
                   Label label);

  // Behind those in `after`, of which null ones do not count, and the lane's earlier steps.
  const Step* add(Lane lane, std::function<std::shared_ptr<Work>()> start,
                  std::initializer_list<const Step*> after = {}, std::function<void()> then = {});
  // Started now, beside the lane's steps.
  void add_message(Lane lane, std::shared_ptr<Work> message);
  // Memory of the device that lives as long as the work.
  void* scratch(std::size_t bytes);

  // As its group sees it, which calls these alone.
  bool done() const;
  const Step* first_under_way() const;

  const Signature& signature() const { return signature_; }
  std::uint64_t sequence() const { return sequence_; }
  const Label& label() const { return label_; }
  // What this rank tells the others of its call, and what they tell: its group, and the groups'
  // first ranks.
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
  std::deque<Step> steps_;
  std::vector<std::shared_ptr<void>> kept_;
  mutable std::size_t ended_ = 0;  // steps at the beginning
};

// The state that a rank's works share. Its functions are the owner's; between the owner's calls the
// engine starts the steps whose turn has come, where a thread of its own may.
class Pipeline final : public ProgressEngine::Client {
 public:
  Pipeline(Layout layout, std::unique_ptr<Communicator> inner, std::unique_ptr<Communicator> outer,
           HierarchicalOptions options);

  // Starts the work that `plan` makes while the engine is kept away from the communicators.
  std::shared_ptr<Work> submit(const std::function<std::shared_ptr<HierarchicalWork>()>& plan);
  // Starts what can be started, and looks what has ended.
  void progress();
  bool test(const HierarchicalWork& work);
  void wait(const HierarchicalWork& work);
  void check_peers(const HierarchicalWork& work);
  std::vector<int> missing(const HierarchicalWork& work);
  // Makes a communicator of those below, which is the caller's.
  std::unique_ptr<Communicator> split(const std::function<std::unique_ptr<Communicator>()>& make);
  // Ends the group with this error, unless it has failed.
  void abort(GroupFailure failure, const std::string& text) noexcept;
  // The communicator is gone: breaks the circle of works and this.
  void close() noexcept;
  // Whether a thread other than the owner's may start steps.
  bool takes_any_thread() const { return takes_any_thread_; }

  const Layout layout;
  const HierarchicalOptions options;
  const RankNames names = options.names.value_or(RankNames());
  const std::unique_ptr<Communicator> inner, outer, out;
  // The owner's alone.
  std::uint64_t next_sequence = 0;
  Label label;

 private:
  bool under_way() const override;
  bool advance_unattended() noexcept override;
  Communicator* communicator(Lane lane) const;
  // The ranks that a lane's communicator counts as `ranks`.
  std::vector<int> ranks_of(Lane lane, const std::vector<int>& ranks) const;
  // Those below REQUIRE attend().
  void throw_if_failed() const {
    if (failure_) std::rethrow_exception(failure_);
  }
  bool advance();  // whether anything has started or ended
  bool look(Step& step);
  void progress(Lane lane);
  bool start_ready();
  bool look_at_running();
  void check(const HierarchicalWork& last, std::chrono::steady_clock::time_point since);
  void check_all_peers();
  void pass_time(const HierarchicalWork& work, std::chrono::steady_clock::duration patience);
  [[noreturn]] void throw_deadline(const HierarchicalWork& work, const Step& step) const;
  [[noreturn]] void rethrow_from(Lane lane) const;
  [[noreturn]] void fail_with_current();
  void end_with(std::exception_ptr error, GroupFailure failure, const std::string& text) noexcept;

  const bool takes_any_thread_;
  std::array<std::deque<Step*>, kLanes> waiting_, running_;
  std::deque<Step*> messages_;
  std::deque<std::shared_ptr<HierarchicalWork>> open_;  // not done, in the order of the calls
  std::exception_ptr failure_;
  std::chrono::microseconds nap_{20};
  CoreYield core_yield_;
};

}  // namespace tandem::hierarchical
