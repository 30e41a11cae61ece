// Collectives that complete while no rank calls anything.
#include <algorithm>
#include <functional>
#include <memory>
#include <vector>

#include "comm/conformance.h"
#include "comm/numbers.h"
#include "support/waiting.h"

namespace tandem::conformance_progress_test {
namespace {

// Reads memory that another thread may be writing, hidden from ThreadSanitizer: a real program
// would wait for the work first.
__attribute__((noinline, no_sanitize("thread"))) float peek(const float* at) {
  return *static_cast<const volatile float*>(at);
}

// Whether all elements become the expected ones, without calls of the communicator.
bool become(const Buffer& buffer, const std::function<float(std::int64_t)>& expected) {
  const auto* data = static_cast<const float*>(buffer.data);
  std::int64_t i = 0;
  return testing::eventually([&] {
    while (i < buffer.count && same(peek(data + i), expected(i))) ++i;
    return i == buffer.count;
  });
}

bool become_numbers(const Buffer& buffer, int rank, int salt) {
  return become(buffer,
                [&](std::int64_t i) { return static_cast<float>(number_of(rank, i, salt)); });
}

constexpr std::int64_t kSizes[] = {300, 150'001};

void check_all_gather(Communicator& communicator, bool allocated, std::int64_t count) {
  const int ranks = communicator.size();
  const Array mine(communicator, allocated, count, float32);
  const Array all(communicator, allocated, count * ranks, float32);
  const auto parts = all.parts(std::vector<std::int64_t>(static_cast<std::size_t>(ranks), count));
  fill<float>(mine.all(), communicator.rank(), 1);
  std::fill_n(all.data<float>(), all.all().count, 0.0f);
  const auto work = communicator.all_gather(mine.all(), parts);
  for (int peer = 0; peer < ranks; ++peer)
    EXPECT_TRUE(become_numbers(parts[static_cast<std::size_t>(peer)], peer, 1))
        << "rank " << peer << "'s share has not come";
  work->wait();
  for (int peer = 0; peer < ranks; ++peer)
    expect_numbers<float>(parts[static_cast<std::size_t>(peer)], "all_gather", peer, 1);
}

TEST_P(Conformance, AnAllGatherCompletesWhileTheRanksCompute) {
  if (!backend().advances_unattended(ranks())) return;
  run([](Communicator& communicator) {
    for (bool allocated : {false, true})
      for (std::int64_t count : kSizes) check_all_gather(communicator, allocated, count);
  });
}

// Several collectives and messages run at once, and the last is checked first.
TEST_P(Conformance, AllCompletesWhileTheRanksCompute) {
  if (!backend().advances_unattended(ranks())) return;
  run([](Communicator& communicator) {
    const int rank = communicator.rank(), ranks = communicator.size();
    const int next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
    for (std::int64_t count : kSizes) {
      const Array sum(communicator, true, count, float32),
          copy(communicator, false, count, float32), sent(communicator, false, count, float32),
          received(communicator, false, count, float32);
      fill<float>(sum.all(), rank, 2);
      fill<float>(copy.all(), rank, 3);
      fill<float>(sent.all(), rank, 4);
      std::fill_n(received.data<float>(), count, 0.0f);
      std::vector<std::shared_ptr<CollectiveWork>> works = {
          communicator.all_reduce({&sum.all(), 1}, ReduceOp::kSum),
          communicator.broadcast({&copy.all(), 1}, ranks - 1)};
      if (ranks > 1) {
        works.push_back(communicator.recv(received.all(), previous));
        works.push_back(communicator.send(sent.all(), next));
        EXPECT_TRUE(become_numbers(received.all(), previous, 4)) << "no message has come";
      }
      EXPECT_TRUE(become_numbers(copy.all(), ranks - 1, 3)) << "no broadcast has come";
      EXPECT_TRUE(become(sum.all(), [&](std::int64_t i) {
        return combined<float>(ReduceOp::kSum, ranks, i, 2);
      })) << "no sum has come";
      for (const auto& work : works) work->wait();
    }
  });
}

}  // namespace
}  // namespace tandem::conformance_progress_test
