// Every collective over backends x ranks x lengths x types x operations, against an independent
// computation.
#include "comm/conformance.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <deque>
#include <numeric>
#include <thread>

#include "comm/gloo/gloo_backend.h"
#include "comm/local/local_group.h"
#include "comm/process/process_communicator.h"
#include "comm/shm/shm_backend.h"
#include "core/parallel.h"
#include "device/device_manager.h"
#include "support/forked_ranks.h"
#include "support/forked_store.h"
#include "support/mpirun.h"
#include "tandem/config.h"
#include "tandem/errors.h"

namespace tandem {
namespace {

TestBackend threads() {
  return {.name = "local",
          .run = [](int ranks, int groups, const std::function<void(Communicator&, int)>& body) {
            config::set_logical_cpus(ranks);
            const auto cpus = DeviceManager::get().devices(DeviceType::kCpu, "test");
            const std::vector<Device*> devices(cpus.begin(), cpus.end());
            std::vector<std::thread> all;
            for (int number = 0; number < groups; ++number) {
              auto group = std::make_shared<LocalGroup>(devices);
              for (int rank = 0; rank < ranks; ++rank)
                all.emplace_back([=, &body] { body(*group->communicator(rank), number); });
            }
            for (std::thread& thread : all) thread.join();
          }};
}

TestBackend shared_memory() {
  return {.name = "shm",
          .run = [](int ranks, int groups, const std::function<void(Communicator&, int)>& body) {
            auto store = std::make_shared<ForkedStore>();
            const ExitCodes codes = run_processes(ranks * groups, [&](int process) {
              const ThreadBudget one(1);
              const int number = process / ranks;
              ShmOptions options{.store = store,
                                 .name = "group " + std::to_string(number),
                                 .rank = process % ranks,
                                 .size = ranks,
                                 .time_limit = std::chrono::seconds(30)};
              Device& device = *DeviceManager::get().devices(DeviceType::kCpu, "test").front();
              auto communicator =
                  make_process_communicator(make_shm_backend(std::move(options)), device,
                                            {.time_limit = std::chrono::seconds(30)});
              body(*communicator, number);
            });
            EXPECT_EQ(codes, ExitCodes(codes.size(), 0));
          }};
}

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
                                      .time_limit = std::chrono::seconds(30)};
                  Device& device = *DeviceManager::get().devices(DeviceType::kCpu, "test").front();
                  auto communicator =
                      make_process_communicator(make_gloo_backend(std::move(options)), device,
                                                {.time_limit = std::chrono::seconds(30)});
                  body(*communicator, number);
                });
                EXPECT_EQ(codes, ExitCodes(codes.size(), 0));
              },
          .available = has_gloo};
}

TestBackend mpi() {
  return {.name = "mpi",
          .run =
              [](int ranks, int groups, const std::function<void(Communicator&, int)>& body) {
                if (!started_by_mpirun()) {
                  EXPECT_EQ(run_this_test_by_mpirun(ranks), 0);
                  return;
                }
                const auto run = [&](std::unique_ptr<Backend> backend, int number) {
                  const ThreadBudget one(1);
                  Device& device = *DeviceManager::get().devices(DeviceType::kCpu, "test").front();
                  body(*make_process_communicator(std::move(backend), device,
                                                  {.time_limit = std::chrono::seconds(30)}),
                       number);
                };
                const MpiOptions options{.size = ranks, .time_limit = std::chrono::seconds(30)};
                std::vector<std::unique_ptr<Backend>> backends;
                for (int number = 0; number < groups; ++number)
                  backends.push_back(make_mpi_backend(options));
                std::vector<std::thread> others;
                for (int number = 1; number < groups; ++number)
                  others.emplace_back([&, number] {
                    run(std::move(backends[static_cast<std::size_t>(number)]), number);
                  });
                run(std::move(backends.front()), 0);
                for (std::thread& other : others) other.join();
              },
          .available = can_use_mpirun,
          .sums_in_order = false};
}

// Elements in memory that a communicator gives, or in any.
class Array {
 public:
  Array(Communicator& communicator, bool allocated, std::int64_t count, DType dtype)
      : buffer_{nullptr, count, dtype} {
    if (allocated) {
      memory_ = communicator.allocate(buffer_.bytes());
    } else if (count > 0) {
      memory_ = {new std::byte[buffer_.bytes()],
                 [](void* memory) { delete[] static_cast<std::byte*>(memory); }};
    }
    buffer_.data = memory_.get();
  }
  const Buffer& all() const { return buffer_; }
  Buffer part(std::int64_t begin, std::int64_t end) const {
    if (begin == end) return {nullptr, 0, buffer_.dtype};
    return {static_cast<std::byte*>(buffer_.data) +
                static_cast<std::size_t>(begin) * size_of(buffer_.dtype),
            end - begin, buffer_.dtype};
  }
  // A part for each of `counts`, one behind the other.
  std::vector<Buffer> parts(const std::vector<std::int64_t>& counts) const {
    std::vector<Buffer> result;
    std::int64_t at = 0;
    for (std::int64_t count : counts) {
      result.push_back(part(at, at + count));
      at += count;
    }
    return result;
  }
  template <class T>
  T* data() const {
    return static_cast<T*>(buffer_.data);
  }

 private:
  Buffer buffer_;
  std::shared_ptr<void> memory_;
};

// Small whole numbers, so that results are the same in every type that can hold them.
std::int64_t number_of(int rank, std::int64_t i, int salt = 0) {
  return (i * 7 + rank * 13 + salt * 5 + i / 1000) % 4 + 1;
}

template <class T>
void fill(const Buffer& buffer, int rank, int salt = 0, std::int64_t origin = 0) {
  auto* data = static_cast<T*>(buffer.data);
  for (std::int64_t i = 0; i < buffer.count; ++i) {
    const std::int64_t number = number_of(rank, origin + i, salt);
    if constexpr (std::is_same_v<T, bool>)
      data[i] = number > 2;
    else if constexpr (std::is_integral_v<T>)
      data[i] = static_cast<T>(number);
    else
      data[i] = static_cast<T>(static_cast<float>(number));
  }
}

// What all ranks' elements combine to.
template <class T>
T combined(ReduceOp op, int ranks, std::int64_t i, int salt = 0) {
  std::int64_t result = number_of(0, i, salt);
  for (int rank = 1; rank < ranks; ++rank) {
    const std::int64_t next = number_of(rank, i, salt);
    switch (op) {
      case ReduceOp::kSum:
      case ReduceOp::kMean: result += next; break;
      case ReduceOp::kMin: result = std::min(result, next); break;
      case ReduceOp::kMax: result = std::max(result, next); break;
      case ReduceOp::kProduct: result *= next; break;
    }
  }
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(op == ReduceOp::kMean ? result / ranks : result);
  } else if constexpr (std::is_same_v<T, double>) {
    return op == ReduceOp::kMean ? static_cast<double>(result) / ranks
                                 : static_cast<double>(result);
  } else {
    const auto value = static_cast<float>(result);
    return static_cast<T>(op == ReduceOp::kMean ? value / static_cast<float>(ranks) : value);
  }
}

template <class T>
bool same(T a, T b) {
  return std::memcmp(&a, &b, sizeof(T)) == 0;
}

// Calls expected(i) for each element.
template <class T, class Expected>
void expect_elements(const Buffer& buffer, const char* what, const Expected& expected) {
  const auto* data = static_cast<const T*>(buffer.data);
  for (std::int64_t i = 0; i < buffer.count; ++i)
    if (!same<T>(data[i], expected(i))) {
      ADD_FAILURE() << what << ": element " << i << " of " << buffer.count << " "
                    << name_of(buffer.dtype) << " is " << static_cast<double>(data[i])
                    << ", expected " << static_cast<double>(expected(i));
      return;
    }
}

template <class T>
void expect_numbers(const Buffer& buffer, const char* what, int rank, int salt = 0,
                    std::int64_t origin = 0) {
  std::vector<T> expected(static_cast<std::size_t>(buffer.count) + 1);
  std::vector<std::uint8_t> bits(expected.size() * sizeof(T));
  const Buffer reference = {bits.data(), buffer.count, buffer.dtype};
  fill<T>(reference, rank, salt, origin);
  expect_elements<T>(buffer, what, [&](std::int64_t i) {
    T value;
    std::memcpy(&value, bits.data() + static_cast<std::size_t>(i) * sizeof(T), sizeof(T));
    return value;
  });
}

constexpr std::int64_t kLengths[] = {0, 1, 7, 1021, 65'539, 400'003};
constexpr ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kMean, ReduceOp::kMin, ReduceOp::kMax,
                             ReduceOp::kProduct};

template <class T>
void check_all_reduce(Communicator& communicator, bool allocated, std::int64_t length,
                      ReduceOp op) {
  const Array array(communicator, allocated, length, dtype_of<T>);
  fill<T>(array.all(), communicator.rank());
  const std::int64_t third = length / 3, half = length / 2;
  const Buffer parts[] = {array.part(0, third), array.part(third, half), array.part(half, length)};
  communicator.all_reduce(parts, op)->wait();
  expect_elements<T>(array.all(), "all_reduce",
                     [&](std::int64_t i) { return combined<T>(op, communicator.size(), i); });
}

template <class T>
void check_reductions(Communicator& communicator) {
  for (std::int64_t length : {257, 20'011})
    for (ReduceOp op : kOps)
      for (bool allocated : {false, true}) check_all_reduce<T>(communicator, allocated, length, op);
}

TEST_P(Conformance, AllReduce) {
  run([](Communicator& communicator) {
    for (std::int64_t length : kLengths)
      for (bool allocated : {false, true})
        check_all_reduce<float>(communicator, allocated, length, ReduceOp::kSum);
    check_reductions<float>(communicator);
    check_reductions<double>(communicator);
    check_reductions<Half>(communicator);
    check_reductions<BFloat16>(communicator);
    check_reductions<std::int32_t>(communicator);
    check_reductions<std::int64_t>(communicator);
    check_reductions<std::uint8_t>(communicator);
  });
}

TEST_P(Conformance, SeveralTypesInOneCall) {
  run([](Communicator& communicator) {
    const Array floats(communicator, false, 1000, float32),
        halves(communicator, false, 77, float16), wholes(communicator, false, 33, int64);
    fill<float>(floats.all(), communicator.rank());
    fill<Half>(halves.all(), communicator.rank());
    fill<std::int64_t>(wholes.all(), communicator.rank());
    const Buffer parts[] = {floats.part(0, 10), floats.part(10, 1000), halves.all(), wholes.all()};
    communicator.all_reduce(parts, ReduceOp::kSum)->wait();
    const auto sum = [&](auto zero) {
      return [&communicator, zero](std::int64_t i) {
        return combined<decltype(zero)>(ReduceOp::kSum, communicator.size(), i);
      };
    };
    expect_elements<float>(floats.all(), "float32", sum(0.0f));
    expect_elements<Half>(halves.all(), "float16", sum(Half()));
    expect_elements<std::int64_t>(wholes.all(), "int64", sum(std::int64_t{0}));
  });
}

TEST_P(Conformance, ReduceAndBroadcast) {
  run([](Communicator& communicator) {
    const int rank = communicator.rank();
    for (int root = 0; root < communicator.size(); ++root)
      for (std::int64_t length : kLengths)
        for (bool allocated : {false, true}) {
          const Array array(communicator, allocated, length, float32);
          fill<float>(array.all(), rank);
          const Buffer parts[] = {array.part(0, length / 4), array.part(length / 4, length)};
          communicator.reduce(parts, ReduceOp::kSum, root)->wait();
          if (rank == root)
            expect_elements<float>(array.all(), "reduce", [&](std::int64_t i) {
              return combined<float>(ReduceOp::kSum, communicator.size(), i);
            });
          else
            expect_numbers<float>(array.all(), "reduce, not the root", rank);
          fill<float>(array.all(), rank, 3);
          communicator.broadcast(parts, root)->wait();
          expect_numbers<float>(array.all(), "broadcast", root, 3);
        }
    const Array flags(communicator, false, 300, bool_);
    fill<bool>(flags.all(), rank);
    communicator.broadcast({&flags.all(), 1}, 0)->wait();
    expect_numbers<bool>(flags.all(), "broadcast of bool", 0);
  });
}

// A count a rank, some of them 0.
std::vector<std::int64_t> uneven(int ranks, std::int64_t most) {
  std::vector<std::int64_t> counts;
  for (int rank = 0; rank < ranks; ++rank)
    counts.push_back(rank % 3 == 2 ? 0 : std::max<std::int64_t>(most - rank * 11, 0));
  return counts;
}

TEST_P(Conformance, AllGatherAndReduceScatter) {
  run([](Communicator& communicator) {
    const int rank = communicator.rank(), ranks = communicator.size();
    const auto me = static_cast<std::size_t>(rank);
    for (std::int64_t most : {0, 1, 100, 9'001, 300'001})
      for (bool allocated : {false, true})
        for (bool in_place : {false, true}) {
          const auto counts = uneven(ranks, most);
          const std::int64_t total = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
          const Array all(communicator, allocated, total, float32);
          const Array apart(communicator, allocated, counts[me], float32);
          const auto parts = all.parts(counts);
          const Buffer mine = in_place ? parts[me] : apart.all();
          fill<float>(mine, rank, 2);
          communicator.all_gather(mine, parts)->wait();
          for (int peer = 0; peer < ranks; ++peer)
            expect_numbers<float>(parts[static_cast<std::size_t>(peer)], "all_gather", peer, 2);

          fill<float>(all.all(), rank, 4);
          communicator.reduce_scatter(parts, mine, ReduceOp::kSum)->wait();
          const std::int64_t begin =
              std::accumulate(counts.begin(), counts.begin() + rank, std::int64_t{0});
          expect_elements<float>(mine, "reduce_scatter", [&](std::int64_t i) {
            return combined<float>(ReduceOp::kSum, ranks, begin + i, 4);
          });
          for (int peer = 0; peer < ranks; ++peer)
            if (peer != rank) {
              const std::int64_t at =
                  std::accumulate(counts.begin(), counts.begin() + peer, std::int64_t{0});
              expect_numbers<float>(parts[static_cast<std::size_t>(peer)], "not mine", rank, 4, at);
            }
        }
  });
}

TEST_P(Conformance, AllToAll) {
  run([](Communicator& communicator) {
    const int rank = communicator.rank(), ranks = communicator.size();
    for (std::int64_t most : {0, 5, 1000, 150'001}) {
      const auto count = [&](int from, int to) {
        return (from + 2 * to) % 4 == 3 ? 0 : most / (1 + from + to);
      };
      std::vector<std::int64_t> sent_counts, received_counts;
      for (int peer = 0; peer < ranks; ++peer) {
        sent_counts.push_back(count(rank, peer));
        received_counts.push_back(count(peer, rank));
      }
      const auto total = [](const std::vector<std::int64_t>& counts) {
        return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
      };
      const Array sent(communicator, false, total(sent_counts), int32);
      const Array received(communicator, true, total(received_counts), int32);
      const auto sent_parts = sent.parts(sent_counts);
      const auto received_parts = received.parts(received_counts);
      for (int peer = 0; peer < ranks; ++peer)
        fill<std::int32_t>(sent_parts[static_cast<std::size_t>(peer)], rank, peer);
      communicator.all_to_all(sent_parts, received_parts)->wait();
      for (int peer = 0; peer < ranks; ++peer)
        expect_numbers<std::int32_t>(received_parts[static_cast<std::size_t>(peer)], "all_to_all",
                                     peer, rank);
    }
  });
}

TEST_P(Conformance, Messages) {
  if (ranks() < 2) return;
  run([](Communicator& communicator) {
    const int rank = communicator.rank(), ranks = communicator.size();
    const int next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
    // Several on their way at once, of all lengths; they arrive in order.
    std::deque<Array> sent, received;
    std::vector<std::shared_ptr<Work>> works;
    int salt = 0;
    for (std::int64_t length : kLengths) {
      const Array& from = sent.emplace_back(communicator, false, length, float32);
      const Array& to = received.emplace_back(communicator, false, length, float32);
      fill<float>(from.all(), rank, salt++);
      works.push_back(communicator.recv(to.all(), previous));
      works.push_back(communicator.send(from.all(), next));
    }
    // A collective beside them.
    check_all_reduce<float>(communicator, false, 5000, ReduceOp::kSum);
    for (auto work = works.rbegin(); work != works.rend(); ++work) (*work)->wait();
    for (int i = 0; i < salt; ++i)
      expect_numbers<float>(received[static_cast<std::size_t>(i)].all(), "recv", previous, i);
    // From all to one, taken in the order of the ranks.
    const Array box(communicator, true, 100, float32);
    if (rank > 0) {
      fill<float>(box.all(), rank, 9);
      communicator.send(box.all(), 0)->wait();
    } else {
      for (int peer = 1; peer < ranks; ++peer) {
        communicator.recv(box.all(), peer)->wait();
        expect_numbers<float>(box.all(), "gathered by messages", peer, 9);
      }
    }
  });
}

TEST_P(Conformance, BarrierAndExchange) {
  const auto now = [] { return std::chrono::steady_clock::now().time_since_epoch().count(); };
  run([&](Communicator& communicator) {
    for (int round = 1; round <= 20; ++round) {
      const auto called = now();  // on one clock for all processes
      communicator.barrier()->wait();
      const auto returned = now();
      std::vector<decltype(now())> calls(static_cast<std::size_t>(communicator.size()));
      communicator.exchange(&called, sizeof(called), calls.data());
      for (const auto call : calls) EXPECT_LE(call, returned);
      const int mine = communicator.rank() * 100 + round;
      std::vector<int> all(static_cast<std::size_t>(communicator.size()));
      communicator.exchange(&mine, sizeof(mine), all.data());
      for (int rank = 0; rank < communicator.size(); ++rank)
        EXPECT_EQ(all[static_cast<std::size_t>(rank)], rank * 100 + round);
    }
  });
}

// More under way than a backend may have room for, of several kinds, waited for from the last.
TEST_P(Conformance, ManyUnderWay) {
  run([](Communicator& communicator) {
    std::deque<Array> sums, copies;
    std::vector<std::shared_ptr<Work>> works;
    constexpr int kMany = 100;
    for (int i = 0; i < kMany; ++i) {
      const std::int64_t length = i % 7 == 6 ? 150'000 : 10 + i * 37;
      const Array& sum = sums.emplace_back(communicator, i % 2 == 0, length, float32);
      const Array& copy = copies.emplace_back(communicator, i % 3 == 0, length / 2, int64);
      fill<float>(sum.all(), communicator.rank(), i);
      fill<std::int64_t>(copy.all(), communicator.rank(), i);
      works.push_back(communicator.all_reduce({&sum.all(), 1}, ReduceOp::kSum));
      works.push_back(communicator.broadcast({&copy.all(), 1}, i % communicator.size()));
      if (i % 10 == 9) communicator.progress();
    }
    for (auto work = works.rbegin(); work != works.rend(); ++work) (*work)->wait();
    for (const auto& work : works) EXPECT_TRUE(work->test());
    for (int i = 0; i < kMany; ++i) {
      expect_elements<float>(sums[static_cast<std::size_t>(i)].all(), "sum", [&](std::int64_t at) {
        return combined<float>(ReduceOp::kSum, communicator.size(), at, i);
      });
      expect_numbers<std::int64_t>(copies[static_cast<std::size_t>(i)].all(), "copy",
                                   i % communicator.size(), i);
    }
  });
}

TEST_P(Conformance, TestEndsWithoutWaiting) {
  run([](Communicator& communicator) {
    const Array array(communicator, true, 30'000, float32);
    fill<float>(array.all(), communicator.rank());
    const auto work = communicator.all_reduce({&array.all(), 1}, ReduceOp::kSum);
    while (!work->test()) std::this_thread::yield();
    expect_elements<float>(array.all(), "all_reduce", [&](std::int64_t i) {
      return combined<float>(ReduceOp::kSum, communicator.size(), i);
    });
    communicator.barrier()->wait();  // the others may still need this rank's share
  });
}

TEST_P(Conformance, SubGroups) {
  run([](Communicator& communicator) {
    const int rank = communicator.rank(), ranks = communicator.size();
    std::vector<int> mine, others, backwards(static_cast<std::size_t>(ranks));
    for (int peer = 0; peer < ranks; ++peer) (peer % 2 == rank % 2 ? mine : others).push_back(peer);
    std::iota(backwards.rbegin(), backwards.rend(), 0);

    const auto half = communicator.split(mine);
    const auto again = communicator.split(mine);  // a group of its own
    const auto turned = communicator.split(backwards);
    if (ranks > 1) {
      EXPECT_EQ(communicator.split(others), nullptr);
    }
    ASSERT_NE(half, nullptr);
    EXPECT_EQ(half->size(), static_cast<int>(mine.size()));
    EXPECT_EQ(mine[static_cast<std::size_t>(half->rank())], rank);
    EXPECT_EQ(turned->rank(), ranks - 1 - rank);

    // All of them under way at once, started in an order that differs from group to group.
    const Array a(*half, true, 40'000, float32), b(*again, false, 300, float32),
        c(*turned, true, 90'000, float32), d(communicator, true, 1000, float32);
    for (const Array* array : {&a, &b, &c, &d}) fill<float>(array->all(), rank);
    const auto whole = communicator.all_reduce({&d.all(), 1}, ReduceOp::kMax);
    const auto third = turned->broadcast({&c.all(), 1}, 0);
    const auto second = again->all_reduce({&b.all(), 1}, ReduceOp::kSum);
    const auto first = half->all_reduce({&a.all(), 1}, ReduceOp::kSum);
    first->wait();
    second->wait();
    third->wait();
    whole->wait();
    const auto sum_of_mine = [&](std::int64_t i) {
      std::int64_t sum = 0;
      for (int peer : mine) sum += number_of(peer, i);
      return static_cast<float>(sum);
    };
    expect_elements<float>(a.all(), "half", sum_of_mine);
    expect_elements<float>(b.all(), "again", sum_of_mine);
    expect_numbers<float>(c.all(), "turned", ranks - 1);
    expect_elements<float>(d.all(), "whole", [&](std::int64_t i) {
      return combined<float>(ReduceOp::kMax, ranks, i);
    });
    communicator.barrier()->wait();
  });
}

TEST_P(Conformance, SeveralGroupsAtOnce) {
  backend().run(ranks(), 3, [](Communicator& communicator, int number) {
    for (int round = 0; round < 5; ++round) {
      const Array array(communicator, round % 2 == 0, 10'000 + number * 1000, float32);
      fill<float>(array.all(), communicator.rank(), number);
      communicator.all_reduce({&array.all(), 1}, ReduceOp::kSum)->wait();
      expect_elements<float>(array.all(), "all_reduce", [&](std::int64_t i) {
        return combined<float>(ReduceOp::kSum, communicator.size(), i, number);
      });
    }
  });
}

// Values whose sums depend on the order.
float rough(int rank, std::int64_t i) {
  return std::sin(static_cast<float>(i + 1) * static_cast<float>(rank + 1)) *
         std::exp2(static_cast<float>((i + rank * 3) % 20));
}

TEST_P(Conformance, TheSameBitsEveryRun) {
  const bool in_order = backend().sums_in_order;
  run([in_order](Communicator& communicator) {
    for (std::int64_t length : {1000, 300'000})
      for (bool allocated : {false, true}) {
        std::vector<float> first;
        for (int again = 0; again < 2; ++again) {
          const Array array(communicator, allocated, length, float32);
          for (std::int64_t i = 0; i < length; ++i)
            array.data<float>()[i] = rough(communicator.rank(), i);
          communicator.all_reduce({&array.all(), 1}, ReduceOp::kSum)->wait();
          if (again == 0) first.assign(array.data<float>(), array.data<float>() + length);
          expect_elements<float>(array.all(), "second run", [&](std::int64_t i) {
            return first[static_cast<std::size_t>(i)];
          });
        }
        // The same on every rank.
        std::uint64_t hash = 0;
        for (float value : first) hash = hash * 31 + std::bit_cast<std::uint32_t>(value);
        std::vector<std::uint64_t> hashes(static_cast<std::size_t>(communicator.size()));
        communicator.exchange(&hash, sizeof(hash), hashes.data());
        EXPECT_EQ(hashes, std::vector<std::uint64_t>(hashes.size(), hash));
        if (!in_order) continue;
        const Buffer result = {first.data(), length, float32};
        expect_elements<float>(result, "in order", [&](std::int64_t i) {
          float sum = rough(0, i);
          for (int rank = 1; rank < communicator.size(); ++rank) sum += rough(rank, i);
          return sum;
        });
      }
  });
}

template <class Body>
std::string refusal(const Body& body) {
  try {
    body();
  } catch (const InvalidArgumentError& error) {
    return error.what();
  }
  return "no error";
}

TEST_P(Conformance, RefusesWhatCannotWork) {
  run([](Communicator& communicator) {
    const int ranks = communicator.size();
    const Array array(communicator, false, 8, float32), flags(communicator, false, 8, bool_);
    const std::vector<Buffer> shares(static_cast<std::size_t>(ranks), array.all());
    const std::vector<Buffer> too_many(static_cast<std::size_t>(ranks) + 1, array.all());
    const auto expect = [](const std::string& text, const char* part) {
      EXPECT_NE(text.find(part), std::string::npos) << text;
    };
    expect(refusal([&] {
             communicator.all_reduce({&flags.all(), 1}, ReduceOp::kSum);
           }),
           "[all_reduce] bool elements cannot be reduced; cast them first");
    expect(refusal([&] {
             communicator.broadcast({&array.all(), 1}, ranks);
           }),
           "[broadcast] expected a root of 0 to");
    expect(refusal([&] { communicator.all_gather(array.all(), too_many); }),
           "[all_gather] expected a buffer for each of");
    expect(refusal([&] { communicator.all_gather(array.part(0, 3), shares); }),
           "this rank's own buffer has 3 float32, its share 8 float32");
    expect(refusal([&] { communicator.send(array.all(), communicator.rank()); }),
           "[send] expected a peer of 0 to");
    const int twice[] = {0, 0}, outside[] = {ranks};
    expect(refusal([&] { communicator.split(twice); }), "[split] rank 0 is named twice");
    expect(refusal([&] { communicator.split(outside); }), "[split] expected ranks of 0 to");
    communicator.barrier()->wait();  // the group is still of use
  });
}

std::string name_of_case(const ::testing::TestParamInfo<Conformance::ParamType>& info) {
  return std::get<0>(info.param).name + std::to_string(std::get<1>(info.param));
}

INSTANTIATE_TEST_SUITE_P(Backends, Conformance,
                         ::testing::Combine(::testing::Values(threads(), shared_memory(), gloo()),
                                            ::testing::Range(1, 8)),
                         name_of_case);
INSTANTIATE_TEST_SUITE_P(Mpirun, Conformance,
                         ::testing::Combine(::testing::Values(mpi()), ::testing::Values(2, 3, 4)),
                         name_of_case);

}  // namespace
}  // namespace tandem
