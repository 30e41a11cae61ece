// Runs the ranks of the conformance suite as processes.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "comm/conformance.h"
#include "comm/process/group_options.h"
#include "comm/process/process_communicator.h"
#include "core/parallel.h"
#include "device/device_manager.h"
#include "support/forked_ranks.h"
#include "support/forked_store.h"

namespace tandem {

// TestBackend::run for backends that `make` makes.
inline auto in_processes(const std::function<std::unique_ptr<Backend>(GroupOptions)>& make) {
  return [make](int ranks, int groups, const std::function<void(Communicator&, int)>& body) {
    auto store = std::make_shared<ForkedStore>();
    const ExitCodes codes = run_processes(ranks * groups, [&](int process) {
      const ThreadBudget one(1);
      const int number = process / ranks;
      GroupOptions options{.store = store,
                           .name = "group " + std::to_string(number),
                           .rank = process % ranks,
                           .size = ranks,
                           .time_limit = std::chrono::minutes(5)};
      DeviceImpl& device = *DeviceManager::get().devices(DeviceType::kCpu, "test").front();
      const auto communicator = make_process_communicator(make(std::move(options)), device,
                                                          {.time_limit = std::chrono::minutes(5)});
      body(*communicator, number);
    });
    EXPECT_EQ(codes, ExitCodes(codes.size(), 0));
  };
}

}  // namespace tandem
