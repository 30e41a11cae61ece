// Jobs for fault tests: processes with one communicator each.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "comm/gloo/gloo_backend.h"
#include "comm/membership.h"
#include "comm/nccl/nccl_backend.h"
#include "comm/process/process_communicator.h"
#include "comm/shm/shm_backend.h"
#include "core/parallel.h"
#include "device/device_manager.h"
#include "support/forked_ranks.h"
#include "support/forked_store.h"
#include "support/waiting.h"
#include "tandem/errors.h"

namespace tandem::testing {

// A job's membership, as far as this process knows.
class TestMembership final : public Membership {
 public:
  int rank() const override { return 0; }
  int size() const override { return 2; }
  bool failed() const noexcept override { return failed_->load(std::memory_order_relaxed); }
  void set_needs_all(bool) override {}
  void throw_failure() const override { throw UnavailableError("rank 7 on host far went away"); }
  void report(const std::string&) override { failed_->store(true); }

 private:
  std::shared_ptr<std::atomic<bool>> failed_ = shared_with_forks<std::atomic<bool>>();
};

struct FaultJob {
  const char* backend = "shm";  // or "gloo", "nccl"
  std::shared_ptr<Store> store = std::make_shared<ForkedStore>();
  int ranks = 3;
  std::chrono::milliseconds time_limit = kFarAway;
  std::chrono::milliseconds join_limit = kFarAway;
  std::shared_ptr<Membership> membership;
  DeviceType device = DeviceType::kCpu;
  std::string address;  // for gloo
  std::string name = "test";

  std::unique_ptr<Communicator> join(int rank) const {
    return make_process_communicator(make_backend(rank), device_of(),
                                     {.time_limit = time_limit, .membership = membership});
  }

 private:
  DeviceImpl& device_of() const { return *DeviceManager::get().devices(device, "test").front(); }
  std::unique_ptr<Backend> make_backend(int rank) const {
    GroupOptions options{.store = store,
                         .name = name,
                         .rank = rank,
                         .size = ranks,
                         .time_limit = join_limit,
                         .membership = membership};
    if (backend == std::string_view("gloo"))
      return make_gloo_backend(std::move(options), {.address = address});
    if (backend == std::string_view("nccl"))
      return make_nccl_backend(std::move(options), {&device_of(), rank});
    return make_shm_backend(std::move(options));
  }
};

// Runs body as each rank. Ranks in `killed` are expected to end by SIGKILL, the others to succeed.
inline void run_ranks(const FaultJob& job, const std::vector<int>& killed,
                      const std::function<void(Communicator&)>& body) {
  const ExitCodes codes = run_processes(job.ranks, [&](int rank) {
    const ThreadBudget one(1);
    body(*job.join(rank));
  });
  ExitCodes expected(codes.size(), 0);
  for (int rank : killed) expected[static_cast<std::size_t>(rank)] = 128 + SIGKILL;
  EXPECT_EQ(codes, expected);
}

// A buffer that lives as long as the process.
inline Buffer floats(std::int64_t count, float value = 1.0f) {
  auto* data = new std::vector<float>(static_cast<std::size_t>(count), value);
  return {data->data(), count, float32};
}

inline void all_reduce(Communicator& communicator, std::int64_t count) {
  const Buffer buffer = floats(count);
  communicator.all_reduce({&buffer, 1}, ReduceOp::kSum)->wait();
  const auto* data = static_cast<const float*>(buffer.data);
  EXPECT_EQ(
      std::vector<float>(data, data + count),
      std::vector<float>(static_cast<std::size_t>(count), static_cast<float>(communicator.size())));
}

}  // namespace tandem::testing
