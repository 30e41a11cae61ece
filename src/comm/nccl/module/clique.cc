// The ranks of one process, which one thread speaks for.
#include "comm/nccl/module/calls.h"
#include "comm/nccl/module/connection.h"
#include "comm/nccl/nccl_clique.h"
#include "core/status.h"

#include <atomic>
#include <mutex>
#include <thread>

namespace tandem::nccl_backend {
namespace {

using Clock = std::chrono::steady_clock;

class Clique final : public NcclClique {
 public:
  explicit Clique(NcclCliqueOptions options) : options_(std::move(options)) {
    const ncclUniqueId id = id_of(new_id());
    const int size = static_cast<int>(options_.gpus.size());
    in_group([&] {
      for (NativeGpu* gpu : options_.gpus) {
        const OnGpu here(gpu->ordinal());
        auto* const stream = static_cast<cudaStream_t>(gpu->communication_stream().native_handle());
        const int rank = static_cast<int>(ranks_.size());
        ranks_.push_back(std::make_unique<Connection>(rank, size, id, stream));
      }
    });
    wait_until_ready();
  }

  ~Clique() override {
    for (const auto& rank : ranks_) rank->part();
  }

  void start(const Signature& signature, std::span<const Share> shares) override {
    const std::lock_guard lock(mutex_);
    if (failed_) fail<AbortedError>("[nccl] the GPUs' connection was ended by an earlier failure");
    try {
      wait_until_ready();
      in_group([&] {
        for (std::size_t i = 0; i < ranks_.size(); ++i) {
          const OnGpu here(options_.gpus[i]->ordinal());
          call_share(signature, static_cast<int>(i), shares[i].in, shares[i].out, ranks_[i]->comm(),
                     ranks_[i]->stream());
        }
      });
      wait_until_ready();  // only then is everything on the streams
    } catch (...) {
      failed_ = true;
      for (const auto& rank : ranks_) rank->abort();
      throw;
    }
  }

  bool failed() const override { return failed_; }

 private:
  template <class Calls>
  static void in_group(const Calls& calls) {
    check(ncclGroupStart(), "ncclGroupStart");
    try {
      calls();
    } catch (...) {
      ncclGroupEnd();
      throw;
    }
    check(ncclGroupEnd(), "ncclGroupEnd");
  }

  void wait_until_ready() {
    const auto end = Clock::now() + options_.time_limit;
    for (const auto& rank : ranks_)
      while (!rank->ready()) {
        if (Clock::now() > end)
          fail<DeadlineExceededError>("[nccl] {} GPUs were not connected within {} ms",
                                      ranks_.size(), options_.time_limit.count());
        std::this_thread::sleep_for(std::chrono::microseconds(20));
      }
  }

  const NcclCliqueOptions options_;
  std::mutex mutex_;
  std::atomic<bool> failed_{false};
  std::vector<std::unique_ptr<Connection>> ranks_;
};

}  // namespace
}  // namespace tandem::nccl_backend

extern "C" __attribute__((visibility("default"))) tandem::NcclClique* tandem_make_nccl_clique(
    tandem::NcclCliqueOptions* options) {
  return new tandem::nccl_backend::Clique(std::move(*options));
}
