// The conformance suite for hierarchical communicators.
#include <string>
#include <thread>
#include <vector>

#include "comm/conformance.h"
#include "comm/gloo/gloo_backend.h"
#include "comm/hierarchical/hierarchical_communicator.h"
#include "comm/local/local_group.h"
#include "comm/process/process_communicator.h"
#include "comm/shm/shm_backend.h"
#include "core/parallel.h"
#include "device/device_manager.h"
#include "support/forked_ranks.h"
#include "support/forked_store.h"
#include "tandem/config.h"

namespace tandem::conformance_hierarchical {
namespace {

constexpr std::chrono::minutes kLimit(5);
// so small that the suite's large buffers consist of several pieces
constexpr std::size_t kPiece = 128 << 10;

// The position of a rank in groups of `size` ranks; the last group may be smaller.
struct GroupPosition {
  GroupPosition(int rank, int ranks, int size)
      : group(rank / size),
        groups((ranks + size - 1) / size),
        place(rank % size),
        members(std::min(size, ranks - group * size)) {}
  int group, groups, place, members;
};

std::vector<DeviceImpl*> cpus(int count) {
  config::set_logical_cpus(count);
  const auto found = DeviceManager::get().devices(DeviceType::kCpu, "test");
  return {found.begin(), found.end()};
}

std::unique_ptr<Communicator> through(std::unique_ptr<Backend> backend, DeviceImpl& device) {
  return make_process_communicator(std::move(backend), device, {.time_limit = kLimit});
}

GroupOptions options_of(const std::shared_ptr<Store>& store, const std::string& name, int rank,
                        int size) {
  return {.store = store, .name = name, .rank = rank, .size = size, .time_limit = kLimit};
}

// Groups of threads, joined by threads.
TestBackend of_threads() {
  return {.name = "local",
          .run =
              [](int ranks, int groups, const std::function<void(Communicator&, int)>& body) {
                const std::vector<DeviceImpl*> devices = cpus(ranks);
                std::vector<std::thread> all;
                for (int number = 0; number < groups; ++number) {
                  std::vector<std::shared_ptr<LocalGroup>> inner;
                  std::vector<DeviceImpl*> first;
                  for (int rank = 0; rank < ranks; rank += 3) {
                    const auto begin = devices.begin() + rank;
                    inner.push_back(std::make_shared<LocalGroup>(
                        std::vector<DeviceImpl*>(begin, begin + std::min(3, ranks - rank))));
                    first.push_back(*begin);
                  }
                  auto outer = std::make_shared<LocalGroup>(first);
                  auto direct = std::make_shared<LocalGroup>(devices);
                  for (int rank = 0; rank < ranks; ++rank)
                    all.emplace_back([=, &body] {
                      const GroupPosition at(rank, ranks, 3);
                      const auto whole = make_hierarchical_communicator(
                          inner[static_cast<std::size_t>(at.group)]->communicator(at.place),
                          at.place == 0 ? outer->communicator(at.group) : nullptr,
                          {.time_limit = kLimit,
                           .piece_bytes = kPiece,
                           .direct = direct->communicator(rank)});
                      EXPECT_EQ(whole->rank(), rank);
                      EXPECT_EQ(whole->size(), ranks);
                      body(*whole, number);
                    });
                }
                for (std::thread& thread : all) thread.join();
              },
          .sums_in_order = false,
          .advances_unattended = [](int ranks) { return ranks > 3; }};
}

// Processes with two threads each.
TestBackend of_threads_and_processes() {
  return {
      .name = "shm",
      .run =
          [](int ranks, int groups, const std::function<void(Communicator&, int)>& body) {
            auto store = std::make_shared<ForkedStore>();
            const int processes = (ranks + 1) / 2;
            const ExitCodes codes = run_processes(processes * groups, [&](int process) {
              const int number = process / processes, group = process % processes;
              const int members = std::min(2, ranks - group * 2);
              const std::string name = "group " + std::to_string(number);
              const std::vector<DeviceImpl*> devices = cpus(members);
              const auto inner = std::make_shared<LocalGroup>(devices);
              const auto run_rank = [&](int place) {
                const ThreadBudget one(1);
                DeviceImpl& device = *devices[static_cast<std::size_t>(place)];
                std::unique_ptr<Communicator> outer;
                if (place == 0)
                  outer =
                      through(make_shm_backend(options_of(store, name, group, processes)), device);
                auto direct = through(
                    make_shm_backend(options_of(store, name + " direct", group * 2 + place, ranks)),
                    device);
                const auto whole = make_hierarchical_communicator(
                    inner->communicator(place), std::move(outer),
                    {.time_limit = kLimit, .piece_bytes = kPiece, .direct = std::move(direct)});
                EXPECT_EQ(whole->rank(), group * 2 + place);
                body(*whole, number);
              };
              std::vector<std::thread> others;
              for (int place = 1; place < members; ++place) others.emplace_back(run_rank, place);
              run_rank(0);
              for (std::thread& other : others) other.join();
            });
            EXPECT_EQ(codes, ExitCodes(codes.size(), 0));
          },
      .sums_in_order = false,
      .advances_unattended = [](int ranks) { return ranks > 2; }};
}

// Processes on several hosts.
TestBackend of_processes() {
  return {.name = "gloo",
          .run =
              [](int ranks, int groups, const std::function<void(Communicator&, int)>& body) {
                auto store = std::make_shared<ForkedStore>();
                const ExitCodes codes = run_processes(ranks * groups, [&](int process) {
                  const ThreadBudget one(1);
                  const int number = process / ranks, rank = process % ranks;
                  const GroupPosition at(rank, ranks, 2);
                  const std::string name = "group " + std::to_string(number);
                  DeviceImpl& device = *cpus(1).front();
                  auto inner = through(
                      make_shm_backend(options_of(store, name + " host " + std::to_string(at.group),
                                                  at.place, at.members)),
                      device);
                  std::unique_ptr<Communicator> outer;
                  if (at.place == 0)
                    outer = through(make_gloo_backend(options_of(store, name, at.group, at.groups)),
                                    device);
                  auto direct = through(
                      make_gloo_backend(options_of(store, name + " direct", rank, ranks)), device);
                  const auto whole = make_hierarchical_communicator(
                      std::move(inner), std::move(outer),
                      {.time_limit = kLimit, .piece_bytes = kPiece, .direct = std::move(direct)});
                  EXPECT_EQ(whole->rank(), rank);
                  body(*whole, number);
                });
                EXPECT_EQ(codes, ExitCodes(codes.size(), 0));
              },
          .available = has_gloo,
          .sums_in_order = false};
}

INSTANTIATE_TEST_SUITE_P(HierarchicalLocal, Conformance,
                         ::testing::Combine(::testing::Values(of_threads()),
                                            ::testing::Range(1, 8)),
                         name_of_ranks);
INSTANTIATE_TEST_SUITE_P(HierarchicalLocalShm, Conformance,
                         ::testing::Combine(::testing::Values(of_threads_and_processes()),
                                            ::testing::Range(1, 8)),
                         name_of_ranks);
INSTANTIATE_TEST_SUITE_P(HierarchicalShmGloo, Conformance,
                         ::testing::Combine(::testing::Values(of_processes()),
                                            ::testing::Range(1, 8)),
                         name_of_ranks);

}  // namespace
}  // namespace tandem::conformance_hierarchical
