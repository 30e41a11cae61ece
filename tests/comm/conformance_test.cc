// Every collective for all backends, ranks, sizes, dtypes and reductions, compared with an
// independent computation.
#include "comm/conformance.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <deque>
#include <numeric>
#include <thread>

#include "comm/numbers.h"
#include "support/errors.h"
#include "tandem/errors.h"

namespace tandem::conformance_test {
namespace {

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

TEST_P(Conformance, AllReduceGivesEveryRankTheReduction) {
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

// One count per rank, some of them 0.
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

TEST_P(Conformance, AllToAllGivesEachRankItsPart) {
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

// Every collective supports every dtype, and reductions support every operation.
template <class T>
void check_type(Communicator& communicator) {
  constexpr std::int64_t kEach = 37;
  const int rank = communicator.rank(), ranks = communicator.size();
  const auto me = static_cast<std::size_t>(rank);
  const std::vector<std::int64_t> counts(static_cast<std::size_t>(ranks), kEach);
  const Array own(communicator, false, kEach, dtype_of<T>);
  const Array all(communicator, true, kEach * ranks, dtype_of<T>);
  const Array other(communicator, false, kEach * ranks, dtype_of<T>);
  const auto parts = all.parts(counts), others = other.parts(counts);
  fill<T>(own.all(), rank, 1);
  communicator.all_gather(own.all(), parts)->wait();
  for (int peer = 0; peer < ranks; ++peer)
    expect_numbers<T>(parts[static_cast<std::size_t>(peer)], "all_gather", peer, 1);
  for (int peer = 0; peer < ranks; ++peer)
    fill<T>(parts[static_cast<std::size_t>(peer)], rank, peer);
  communicator.all_to_all(parts, others)->wait();
  for (int peer = 0; peer < ranks; ++peer)
    expect_numbers<T>(others[static_cast<std::size_t>(peer)], "all_to_all", peer, rank);
  fill<T>(all.all(), rank, 2);
  communicator.broadcast({&all.all(), 1}, ranks - 1)->wait();
  expect_numbers<T>(all.all(), "broadcast", ranks - 1, 2);
  fill<T>(own.all(), rank, 3);
  if (rank > 0)
    communicator.send(own.all(), 0)->wait();
  else
    for (int peer = 1; peer < ranks; ++peer) {
      const Buffer& box = others[static_cast<std::size_t>(peer)];
      communicator.recv(box, peer)->wait();
      expect_numbers<T>(box, "recv", peer, 3);
    }
  if constexpr (!std::is_same_v<T, bool>)
    for (ReduceOp op : kOps) {
      fill<T>(all.all(), rank, 4);
      communicator.reduce({&all.all(), 1}, op, ranks - 1)->wait();
      if (rank == ranks - 1)
        expect_elements<T>(all.all(), "reduce",
                           [&](std::int64_t i) { return combined<T>(op, ranks, i, 4); });
      fill<T>(other.all(), rank, 5);
      communicator.reduce_scatter(others, own.all(), op)->wait();
      expect_elements<T>(own.all(), "reduce_scatter", [&](std::int64_t i) {
        return combined<T>(op, ranks, static_cast<std::int64_t>(me) * kEach + i, 5);
      });
    }
}

TEST_P(Conformance, EveryTypeInEveryCollective) {
  run([](Communicator& communicator) {
    check_type<float>(communicator);
    check_type<double>(communicator);
    check_type<Half>(communicator);
    check_type<BFloat16>(communicator);
    check_type<std::int32_t>(communicator);
    check_type<std::int64_t>(communicator);
    check_type<std::uint8_t>(communicator);
    check_type<bool>(communicator);
  });
}

TEST_P(Conformance, MessagesArriveInTheOrderSent) {
  if (ranks() < 2) return;
  run([](Communicator& communicator) {
    const int rank = communicator.rank(), ranks = communicator.size();
    const int next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
    // Several messages of all sizes at once arrive in order.
    std::deque<Array> sent, received;
    std::vector<std::shared_ptr<CollectiveWork>> works;
    int salt = 0;
    for (std::int64_t length : kLengths) {
      const Array& from = sent.emplace_back(communicator, false, length, float32);
      const Array& to = received.emplace_back(communicator, false, length, float32);
      fill<float>(from.all(), rank, salt++);
      works.push_back(communicator.recv(to.all(), previous));
      works.push_back(communicator.send(from.all(), next));
    }
    // A collective at the same time.
    check_all_reduce<float>(communicator, false, 5000, ReduceOp::kSum);
    for (auto work = works.rbegin(); work != works.rend(); ++work) (*work)->wait();
    for (int i = 0; i < salt; ++i)
      expect_numbers<float>(received[static_cast<std::size_t>(i)].all(), "recv", previous, i);
    // All ranks send to one, which receives in the order of the ranks.
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

// More data than a backend buffers, in both directions: the sends must make progress meanwhile.
TEST_P(Conformance, AMessageIsWaitedForBeforeWhatIsSentAfterIt) {
  if (ranks() < 2) return;
  run([](Communicator& communicator) {
    constexpr std::int64_t kLength = 1'500'001;
    const int rank = communicator.rank(), ranks = communicator.size();
    const int next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
    const Array from(communicator, false, kLength, float32),
        to(communicator, false, kLength, float32);
    fill<float>(from.all(), rank, 3);
    const auto received = communicator.recv(to.all(), previous);
    const auto sent = communicator.send(from.all(), next);
    received->wait();
    sent->wait();
    expect_numbers<float>(to.all(), "recv", previous, 3);
  });
}

TEST_P(Conformance, BarrierAndExchange) {
  const auto now = [] { return std::chrono::steady_clock::now().time_since_epoch().count(); };
  run([&](Communicator& communicator) {
    for (int round = 1; round <= 20; ++round) {
      const auto called = now();  // one clock for all processes
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

// More collectives than a backend may have room for, of several kinds, waited for in reverse order.
TEST_P(Conformance, ManyCollectivesMayBeUnderWay) {
  run([](Communicator& communicator) {
    std::deque<Array> sums, copies;
    std::vector<std::shared_ptr<CollectiveWork>> works;
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
    communicator.barrier()->wait();  // the others may still need this rank's part
  });
}

TEST_P(Conformance, SubGroupsAreIndependent) {
  run([](Communicator& communicator) {
    const int rank = communicator.rank(), ranks = communicator.size();
    std::vector<int> mine, others, backwards(static_cast<std::size_t>(ranks));
    for (int peer = 0; peer < ranks; ++peer) (peer % 2 == rank % 2 ? mine : others).push_back(peer);
    std::iota(backwards.rbegin(), backwards.rend(), 0);

    const auto half = communicator.split(mine);
    const auto again = communicator.split(mine);  // an independent group
    const auto turned = communicator.split(backwards);
    if (ranks > 1) {
      EXPECT_EQ(communicator.split(others), nullptr);
    }
    ASSERT_NE(half, nullptr);
    EXPECT_EQ(half->size(), static_cast<int>(mine.size()));
    EXPECT_EQ(mine[static_cast<std::size_t>(half->rank())], rank);
    EXPECT_EQ(turned->rank(), ranks - 1 - rank);

    // Starts all of them at once, in an order that differs between groups.
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

TEST_P(Conformance, RefusesInvalidArguments) {
  run([](Communicator& communicator) {
    const int ranks = communicator.size();
    const Array array(communicator, false, 8, float32), flags(communicator, false, 8, bool_);
    const std::vector<Buffer> shares(static_cast<std::size_t>(ranks), array.all());
    const std::vector<Buffer> too_many(static_cast<std::size_t>(ranks) + 1, array.all());
    const auto expect = [](const std::string& text, const char* part) {
      EXPECT_NE(text.find(part), std::string::npos) << text;
    };
    expect(testing::error_of<InvalidArgumentError>([&] {
             communicator.all_reduce({&flags.all(), 1}, ReduceOp::kSum);
           }),
           "[all_reduce] bool elements cannot be reduced; cast them first");
    expect(testing::error_of<InvalidArgumentError>([&] {
             communicator.broadcast({&array.all(), 1}, ranks);
           }),
           "[broadcast] expected a root of 0 to");
    expect(testing::error_of<InvalidArgumentError>(
               [&] { communicator.all_gather(array.all(), too_many); }),
           "[all_gather] expected a buffer for each of");
    expect(testing::error_of<InvalidArgumentError>(
               [&] { communicator.all_gather(array.part(0, 3), shares); }),
           "this rank's own buffer has 3 float32, its share 8 float32");
    expect(testing::error_of<InvalidArgumentError>(
               [&] { communicator.send(array.all(), communicator.rank()); }),
           "[send] expected a peer of 0 to");
    const int twice[] = {0, 0}, outside[] = {ranks};
    expect(testing::error_of<InvalidArgumentError>([&] { communicator.split(twice); }),
           "[split] expected each rank once, got 0 twice");
    expect(testing::error_of<InvalidArgumentError>([&] { communicator.split(outside); }),
           "[split] expected ranks of 0 to");
    communicator.barrier()->wait();  // the group is still usable
  });
}

}  // namespace
}  // namespace tandem::conformance_test
