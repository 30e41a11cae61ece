// LocalGroup::communicator(): one rank of a group of threads.
#include <algorithm>
#include <deque>
#include <map>

#include "comm/checked_communicator.h"
#include "comm/device_memory.h"
#include "comm/local/local_group.h"
#include "core/status.h"

namespace tandem {

class LocalWork;

// The state that a rank's works share with its communicator.
class LocalRank {
 public:
  LocalRank(std::shared_ptr<LocalGroup> group, int rank)
      : group_(std::move(group)),
        rank_(rank),
        sent_(static_cast<std::size_t>(group_->size())),
        received_(static_cast<std::size_t>(group_->size())) {}

  // Does this rank's part of the collectives that every rank has joined.
  void progress();

 private:
  friend class LocalCommunicator;
  std::shared_ptr<LocalGroup> group_;
  int rank_;
  std::uint64_t step_ = 0;
  std::uint64_t sequence_ = 0;                   // of the step's collectives
  std::vector<std::uint64_t> sent_, received_;   // messages of the step, by peer
  std::deque<std::shared_ptr<LocalWork>> open_;  // in order; this rank's part is not done yet
  std::map<std::vector<int>, int> splits_;       // number of splits per list of ranks
  Label label_;
};

class LocalWork final : public CollectiveWork {
 public:
  LocalWork(std::shared_ptr<LocalGroup> group, std::weak_ptr<LocalRank> owner,
            std::shared_ptr<LocalCollective> collective, int rank)
      : group_(std::move(group)),
        owner_(std::move(owner)),
        collective_(std::move(collective)),
        rank_(rank) {}

  // Does this rank's part if all have joined and it is not done yet.
  bool advance() {
    if (performed_) return true;
    if (!collective_->complete()) return false;
    if (!collective_->mismatch.empty()) throw InvalidArgumentError(collective_->mismatch);
    group_->perform(*collective_, rank_);
    performed_ = true;
    return true;
  }

  void wait() override {
    if (done_) return;
    const profile::Span span([&] {
      return collective_->event(rank_, "wait for " + std::string(name_of(collective_->kind())),
                                profile::Lane::kHost);
    });
    const auto owner = owner_.lock();
    group_->wait_until(*collective_, rank_, [&] {
      if (owner) owner->progress();  // peers may first need this rank's part of another one
      if (advance() && collective_->finished_everywhere()) return true;
      if (group_->ended_count_.load(std::memory_order_acquire) > 0)
        group_->check_ended_ranks(*collective_);
      return false;
    });
    group_->finish(*collective_, rank_);
    done_ = true;
  }

  bool test() override {
    if (done_) return true;
    if (group_->aborted()) group_->throw_abort();
    if (const auto owner = owner_.lock()) owner->progress();
    if (!advance() || !collective_->finished_everywhere()) return false;
    group_->finish(*collective_, rank_);
    return done_ = true;
  }

  void check_peers() override {
    if (done_) return;
    if (group_->aborted()) group_->throw_abort();
    group_->check_ended_ranks(*collective_);
  }
  std::vector<int> missing() const override { return group_->missing(*collective_); }

 private:
  std::shared_ptr<LocalGroup> group_;
  std::weak_ptr<LocalRank> owner_;
  std::shared_ptr<LocalCollective> collective_;
  int rank_;
  bool performed_ = false;
  bool done_ = false;
};

void LocalRank::progress() {
  for (std::size_t i = 0; i < open_.size();)
    if (open_[i]->advance())
      open_.erase(open_.begin() + static_cast<std::ptrdiff_t>(i));
    else
      ++i;
}

class LocalCommunicator final : public CheckedCommunicator {
 public:
  LocalCommunicator(std::shared_ptr<LocalGroup> group, int rank)
      : mine_(std::make_shared<LocalRank>(std::move(group), rank)) {}

  int rank() const override { return mine_->rank_; }
  int size() const override { return group().size(); }
  DeviceImpl& device() const override {
    return *group().devices_[static_cast<std::size_t>(rank())];
  }

  void progress() override { mine_->progress(); }

  void label(std::string_view name, std::int64_t step) override {
    mine_->label_ = {std::string(name), step};
  }

  std::shared_ptr<void> allocate(std::size_t bytes) override {
    return allocate_on(device(), bytes, "allocate", "a communicator's buffer");
  }
  // Threads access each other's memory anywhere. Only NCCL benefits from fewer calls.
  bool packs() const override { return group().uses_nccl() && group().options_.plan.num_packs > 0; }

  void abort(GroupFailure failure, const std::string& text) noexcept override {
    group().abort(rank(), failure, text);
  }

 private:
  LocalGroup& group() const { return *mine_->group_; }

  std::unique_ptr<Communicator> split_off(const std::vector<int>& ranks, int place) override {
    return group().split(ranks, mine_->splits_[ranks]++)->communicator(place);
  }

  std::shared_ptr<CollectiveWork> start(const CheckedCall& checked) override {
    LocalRank& mine = *mine_;
    if (mine.step_ != group().step_) {  // discards the state of the previous step
      mine.step_ = group().step_;
      mine.sequence_ = 0;
      std::fill(mine.sent_.begin(), mine.sent_.end(), 0);
      std::fill(mine.received_.begin(), mine.received_.end(), 0);
      mine.open_.clear();
    }
    LocalGroup::Call call{.signature = checked.signature(),
                          .label = mine.label_,
                          .in = {checked.in.begin(), checked.in.end()},
                          .out = {checked.out.begin(), checked.out.end()}};
    const auto peer = static_cast<std::size_t>(checked.root);
    if (checked.kind == CollectiveKind::kSend)
      call.key = {mine.sent_[peer]++, rank(), checked.root};
    else if (checked.kind == CollectiveKind::kRecv)
      call.key = {mine.received_[peer]++, checked.root, rank()};
    else
      call.key = {mine.sequence_++};
    auto collective = group().join(rank(), std::move(call));
    auto work = std::make_shared<LocalWork>(mine.group_, mine_, std::move(collective), rank());
    mine.open_.push_back(work);
    mine.progress();
    return work;
  }

  std::shared_ptr<LocalRank> mine_;
};

std::unique_ptr<Communicator> LocalGroup::communicator(int rank) {
  return std::make_unique<LocalCommunicator>(shared_from_this(), rank);
}

}  // namespace tandem
