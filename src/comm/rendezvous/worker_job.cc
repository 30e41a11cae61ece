#include "comm/rendezvous/worker_job.h"

#include <algorithm>
#include <utility>

#include "core/status.h"

namespace tandem {
namespace {

// The keys of a store that begin with a prefix.
class PrefixedStore final : public Store {
 public:
  PrefixedStore(std::shared_ptr<Store> store, std::string prefix)
      : store_(std::move(store)), prefix_(std::move(prefix)) {}
  void set(const std::string& key, std::string_view value) override {
    store_->set(prefix_ + key, value);
  }
  std::string get(const std::string& key, TimePoint deadline) override {
    return store_->get(prefix_ + key, deadline);
  }
  std::int64_t add(const std::string& key, std::int64_t delta) override {
    return store_->add(prefix_ + key, delta);
  }
  bool remove(const std::string& key) override { return store_->remove(prefix_ + key); }

 private:
  std::shared_ptr<Store> store_;
  std::string prefix_;
};

class WorkerJob final : public Job {
 public:
  WorkerJob(std::shared_ptr<Job> job, EpochWorkers workers, int rank)
      : job_(std::move(job)),
        ranks_(std::move(workers.ranks)),
        rank_(rank),
        store_(std::make_shared<PrefixedStore>(job_->store(),
                                               fmt::format("epoch {}/", workers.epoch))) {}
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(ranks_.size()); }
  RankNames names() const override { return RankNames(ranks_); }
  const std::string& master() const override { return job_->master(); }
  const std::shared_ptr<Store>& store() const override { return store_; }
  const std::shared_ptr<Membership>& membership() const override { return job_->membership(); }
  void shut_down(std::chrono::milliseconds limit) override { job_->shut_down(limit); }

 private:
  std::shared_ptr<Job> job_;
  std::vector<int> ranks_;
  int rank_;
  std::shared_ptr<Store> store_;
};

}  // namespace

std::unique_ptr<Job> worker_job(const std::shared_ptr<Job>& job) {
  Membership& membership = *job->membership();
  if (membership.role() != Role::kWorker)
    fail<FailedPreconditionError>("[worker_job] rank {} is not a worker", membership.rank());
  EpochWorkers workers = membership.continue_with_survivors();
  const auto place = std::find(workers.ranks.begin(), workers.ranks.end(), membership.rank());
  if (place == workers.ranks.end())
    fail<FailedPreconditionError>("[worker_job] rank {} is not in the job any more",
                                  membership.rank());
  const auto rank = static_cast<int>(place - workers.ranks.begin());
  return std::make_unique<WorkerJob>(job, std::move(workers), rank);
}

}  // namespace tandem
