// The conformance suite between processes that are connected by TCP.
#include <string>

#include "comm/conformance.h"
#include "comm/gloo/gloo_backend.h"
#include "comm/process/process_communicator.h"
#include "core/parallel.h"
#include "device/device_manager.h"
#include "support/forked_ranks.h"
#include "support/forked_store.h"

namespace tandem::conformance_gloo {
namespace {

TestBackend gloo() {
  return {.name = "gloo",
          .run =
              [](int ranks, int groups, const std::function<void(Communicator&, int)>& body) {
                auto store = std::make_shared<ForkedStore>();
                const ExitCodes codes = run_processes(ranks * groups, [&](int process) {
                  const ThreadBudget one(1);
                  const int number = process / ranks;
                  GlooOptions options{.store = store,
                                      .name = "group " + std::to_string(number),
                                      .rank = process % ranks,
                                      .size = ranks,
                                      .time_limit = std::chrono::minutes(5)};
                  Device& device = *DeviceManager::get().devices(DeviceType::kCpu, "test").front();
                  auto communicator =
                      make_process_communicator(make_gloo_backend(std::move(options)), device,
                                                {.time_limit = std::chrono::minutes(5)});
                  body(*communicator, number);
                });
                EXPECT_EQ(codes, ExitCodes(codes.size(), 0));
              },
          .available = has_gloo};
}

INSTANTIATE_TEST_SUITE_P(Gloo, Conformance,
                         ::testing::Combine(::testing::Values(gloo()), ::testing::Range(1, 8)),
                         name_of_ranks);

}  // namespace
}  // namespace tandem::conformance_gloo
