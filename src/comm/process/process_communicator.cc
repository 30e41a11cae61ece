#include "comm/process/process_communicator.h"

#include <algorithm>

#include "comm/checked_communicator.h"
#include "comm/device_memory.h"
#include "comm/process/process_group.h"

namespace tandem {
namespace {

// A call with several dtypes: one collective for each run of one dtype.
class WorkList final : public CollectiveWork {
 public:
  explicit WorkList(std::vector<std::shared_ptr<CollectiveWork>> works)
      : works_(std::move(works)) {}
  void wait() override {
    for (const auto& work : works_) work->wait();
  }
  bool test() override {
    return std::all_of(works_.begin(), works_.end(), [](const auto& work) { return work->test(); });
  }
  void check_peers() override {
    for (const auto& work : works_) work->check_peers();
  }
  std::vector<int> missing() const override {
    for (const auto& work : works_)
      if (auto ranks = work->missing(); !ranks.empty()) return ranks;
    return {};
  }
  // Sleeps on the first work that has not ended.
  bool sleep(std::chrono::microseconds limit) const override {
    for (const auto& work : works_)
      if (!work->test()) return work->sleep(limit);
    return true;
  }

 private:
  std::vector<std::shared_ptr<CollectiveWork>> works_;
};

class ProcessCommunicator final : public CheckedCommunicator {
 public:
  explicit ProcessCommunicator(std::shared_ptr<ProcessGroupState> group)
      : group_(std::move(group)) {}
  ~ProcessCommunicator() override { group_->close(); }

  int rank() const override { return group_->backend->rank(); }
  int size() const override { return group_->backend->size(); }
  DeviceImpl& device() const override { return group_->device; }

  void progress() override { group_->progress(); }
  bool allows_any_thread() const override { return group_->backend->allows_any_thread(); }

  void label(std::string_view name, std::int64_t step) override {
    group_->label = {std::string(name), step};
  }

  std::shared_ptr<void> allocate(std::size_t bytes) override {
    if (bytes == 0) return nullptr;
    if (group_->device.host_accessible())
      if (auto memory = group_->backend->allocate(bytes)) return memory;
    return allocate_on(group_->device, bytes, "allocate", "a communicator's buffer");
  }

  void abort(GroupFailure failure, const std::string& text) noexcept override {
    group_->abort(failure, text);
  }

 private:
  std::shared_ptr<CollectiveWork> start(const CheckedCall& call) override {
    group_->backend->check(call);
    const auto other = std::find_if(call.in.begin(), call.in.end(), [&](const Buffer& part) {
      return part.dtype != call.in.front().dtype;
    });
    if (works_in_place(call.kind) && other != call.in.end()) return start_runs(call);
    auto work = std::make_shared<ProcessWork>(group_, call);
    group_->submit(work);
    return work;
  }

  std::shared_ptr<CollectiveWork> start_runs(const CheckedCall& call) {
    std::vector<std::shared_ptr<CollectiveWork>> works;
    for (std::size_t begin = 0, end = 0; begin < call.in.size(); begin = end) {
      while (end < call.in.size() && call.in[end].dtype == call.in[begin].dtype) ++end;
      CheckedCall run = call;
      run.in = run.counts = call.in.subspan(begin, end - begin);
      works.push_back(start(run));
    }
    return std::make_shared<WorkList>(std::move(works));
  }

  std::unique_ptr<Communicator> split_off(const std::vector<int>& ranks, int) override {
    if (auto below = group_->split_below(ranks)) return below;
    return make_process_communicator(group_->split(ranks), group_->device, group_->options);
  }

  std::shared_ptr<ProcessGroupState> group_;
};

}  // namespace

std::unique_ptr<Communicator> make_process_communicator(std::unique_ptr<Backend> backend,
                                                        DeviceImpl& device,
                                                        ProcessGroupOptions options) {
  return std::make_unique<ProcessCommunicator>(
      std::make_shared<ProcessGroupState>(std::move(backend), device, std::move(options)));
}

}  // namespace tandem
