// The ranks of one process, driven by one thread.
#include <algorithm>
#include <thread>

#include "comm/nccl/module/calls.h"
#include "comm/nccl/module/connections.h"
#include "comm/nccl/nccl_clique.h"
#include "core/status.h"

namespace tandem::nccl_backend {
namespace {

using Clock = std::chrono::steady_clock;

// A collective of all the GPUs.
class CliqueLaunch final : public NcclLaunch {
 public:
  CliqueLaunch(cudaStream_t stream, const Signature& signature, Label label)
      : NcclLaunch(stream), signature_(signature), label_(std::move(label)) {}

  // Adds a rank's events: its GPU has reached the launch, and has completed it.
  void add(StreamEvent reached, StreamEvent ended) {
    reached_.push_back(std::move(reached));
    ended_.push_back(std::move(ended));
  }

  bool reached() const override { return all_done(reached_); }
  bool ended() override { return all_done(ended_); }
  std::string describe() const override { return tandem::describe(signature_, label_); }

 private:
  static bool all_done(const std::vector<StreamEvent>& events) {
    return std::all_of(events.begin(), events.end(),
                       [](const StreamEvent& event) { return event.done(); });
  }

  const Signature signature_;
  const Label label_;
  std::vector<StreamEvent> reached_, ended_;
};

std::string list_names(const std::vector<NativeGpu*>& gpus) {
  std::string names;
  for (const NativeGpu* gpu : gpus)
    names += (names.empty() ? "" : gpu == gpus.back() ? " and " : ", ") + gpu->full_name();
  return names;
}

class Clique final : public NcclClique {
 public:
  explicit Clique(NcclCliqueOptions options)
      : options_(std::move(options)),
        connections_({.name = list_names(options_.gpus),
                      .time_limit = options_.time_limit,
                      .on_failure = [this](const std::shared_ptr<SharedFailure>& failure) {
                        for (NativeGpu* gpu : options_.gpus) gpu->fail_stream(failure);
                      }}) {
    const ncclUniqueId id = id_of(new_id());
    const int size = static_cast<int>(options_.gpus.size());
    in_group([&] {
      for (NativeGpu* gpu : options_.gpus) {
        use_gpu(gpu->ordinal());
        auto* const stream = static_cast<cudaStream_t>(gpu->communication_stream().native_handle());
        const int rank = static_cast<int>(ranks_.size());
        ranks_.push_back(&connections_.add(rank, size, id, stream));
      }
    });
    wait_until_ready();
  }

  void start(const Signature& signature, const Label& label,
             std::span<const RankBuffers> shares) override {
    try {
      wait_until_ready();
      connections_.call([&] {
        for (std::size_t i = 0; i < ranks_.size(); ++i) {
          use_gpu(options_.gpus[i]->ordinal());
          call_share(signature, static_cast<int>(i), shares[i].in, shares[i].out, ranks_[i]->comm(),
                     ranks_[i]->stream());
        }
      });
      wait_until_ready();  // only then has NCCL enqueued everything on the streams
      auto launch = std::make_shared<CliqueLaunch>(ranks_[0]->stream(), signature, label);
      for (std::size_t i = 0; i < ranks_.size(); ++i)
        launch->add(shares[i].ready, options_.gpus[i]->communication_stream().record());
      connections_.watch(std::move(launch));
    } catch (...) {
      connections_.abort(std::current_exception());
      throw;
    }
  }

  bool failed() const override { return connections_.failed(); }
  void check_unreported() override { connections_.check_unreported(); }

 private:
  void wait_until_ready() {
    for (const auto end = Clock::now() + options_.time_limit; !connections_.ready();) {
      if (Clock::now() > end)
        fail<DeadlineExceededError>("[nccl] {} GPUs were not connected within {} ms", ranks_.size(),
                                    options_.time_limit.count());
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  }

  const NcclCliqueOptions options_;
  Connections connections_;
  std::vector<const NcclConnection*> ranks_;
};

}  // namespace
}  // namespace tandem::nccl_backend

extern "C" __attribute__((visibility("default"))) tandem::NcclClique* tandem_make_nccl_clique(
    tandem::NcclCliqueOptions* options) {
  return new tandem::nccl_backend::Clique(std::move(*options));
}
