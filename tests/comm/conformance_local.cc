// The conformance suite between threads of a process.
#include <thread>
#include <vector>

#include "comm/conformance.h"
#include "comm/local/local_group.h"
#include "device/device_manager.h"
#include "tandem/config.h"

namespace tandem::conformance_local {
namespace {

TestBackend threads() {
  return {.name = "local",
          .run =
              [](int ranks, int groups, const std::function<void(Communicator&, int)>& body) {
                config::set_logical_cpus(ranks);
                const auto cpus = DeviceManager::get().devices(DeviceType::kCpu, "test");
                const std::vector<DeviceImpl*> devices(cpus.begin(), cpus.end());
                std::vector<std::thread> all;
                for (int number = 0; number < groups; ++number) {
                  auto group = std::make_shared<LocalGroup>(devices);
                  for (int rank = 0; rank < ranks; ++rank)
                    all.emplace_back([=, &body] { body(*group->communicator(rank), number); });
                }
                for (std::thread& thread : all) thread.join();
              },
          .advances_unattended = [](int) { return false; }};
}

INSTANTIATE_TEST_SUITE_P(Local, Conformance,
                         ::testing::Combine(::testing::Values(threads()), ::testing::Range(1, 8)),
                         name_of_ranks);

}  // namespace
}  // namespace tandem::conformance_local
