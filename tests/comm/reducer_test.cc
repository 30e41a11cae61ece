#include "comm/reducer.h"

#include <gtest/gtest.h>

#include "tandem/errors.h"

namespace tandem {
namespace {

std::vector<GradientInfo> floats(std::initializer_list<std::int64_t> counts) {
  std::vector<GradientInfo> infos;
  for (std::int64_t count : counts) infos.push_back({count, float32});
  return infos;
}

using Buckets = std::vector<std::vector<std::size_t>>;

TEST(AssignBuckets, TakesGradientsLastToFirst) {
  EXPECT_EQ(assign_buckets(floats({1, 1, 1}), {}), (Buckets{{2, 1, 0}}));
}

TEST(AssignBuckets, ClosesABucketWhenItReachesTheLimit) {
  // 16 bytes close the first bucket, 24 the later ones; both may be exceeded by the last gradient.
  const ReducerOptions options{.first_bucket_bytes = 16, .bucket_bytes = 24};
  EXPECT_EQ(assign_buckets(floats({2, 5, 1, 3, 1}), options), (Buckets{{4, 3}, {2, 1}, {0}}));
  EXPECT_EQ(assign_buckets(floats({2, 6, 4}), options), (Buckets{{2}, {1}, {0}}));
}

TEST(AssignBuckets, KeepsTypesApart) {
  const std::vector<GradientInfo> mixed = {{1, float32}, {1, float16}, {1, float32}, {1, float16}};
  EXPECT_EQ(assign_buckets(mixed, {}), (Buckets{{2, 0}, {3, 1}}));
}

// Counts what sets out and when.
class CountingCommunicator final : public Communicator {
 public:
  struct Done final : Work {
    void wait() override {}
    bool test() override { return true; }
  };
  int rank() const override { return 0; }
  int size() const override { return 1; }
  Device& device() const override { std::abort(); }
  std::shared_ptr<Work> all_reduce(std::span<const Buffer> parts, ReduceOp) override {
    launched.push_back(parts.size());
    return std::make_shared<Done>();
  }
  std::shared_ptr<Work> reduce(std::span<const Buffer>, ReduceOp, int) override { std::abort(); }
  std::shared_ptr<Work> broadcast(std::span<const Buffer>, int) override { std::abort(); }
  std::shared_ptr<Work> all_gather(const Buffer&, std::span<const Buffer>) override {
    std::abort();
  }
  std::shared_ptr<Work> reduce_scatter(std::span<const Buffer>, const Buffer&, ReduceOp) override {
    std::abort();
  }
  std::shared_ptr<Work> all_to_all(std::span<const Buffer>, std::span<const Buffer>) override {
    std::abort();
  }
  std::shared_ptr<Work> send(const Buffer&, int) override { std::abort(); }
  std::shared_ptr<Work> recv(const Buffer&, int) override { std::abort(); }
  std::shared_ptr<Work> barrier() override { std::abort(); }
  void exchange(const void*, std::size_t, void*) override {}
  std::shared_ptr<Work> start_exchange(const void*, std::size_t, void*) override { std::abort(); }
  void progress() override {}
  void label(std::string_view, std::int64_t) override {}
  std::shared_ptr<void> allocate(std::size_t) override { std::abort(); }
  std::unique_ptr<Communicator> split(std::span<const int>) override { std::abort(); }
  void abort(GroupFailure, const std::string&) noexcept override { std::abort(); }
  std::vector<std::size_t> launched;  // parts a collective
};

TEST(Reducer, LaunchesABucketAsSoonAsItIsFullAndInOrder) {
  CountingCommunicator communicator;
  Reducer reducer(communicator, floats({4, 4, 4, 4}),
                  {.first_bucket_bytes = 32, .bucket_bytes = 32});
  float memory[16];
  reducer.ready(0, memory);
  reducer.ready(1, memory + 4);  // the second bucket is full, but the first has not set out
  EXPECT_TRUE(communicator.launched.empty());
  reducer.ready(3, memory + 12);
  EXPECT_TRUE(communicator.launched.empty());
  reducer.ready(2, memory + 8);
  EXPECT_EQ(communicator.launched, (std::vector<std::size_t>{2, 2}));
  reducer.finish();
}

TEST(Reducer, LeavesOutSkippedGradients) {
  CountingCommunicator communicator;
  Reducer reducer(communicator, floats({4, 4, 4, 4}),
                  {.first_bucket_bytes = 32, .bucket_bytes = 32});
  float memory[4];
  reducer.skip(3);
  reducer.ready(2, memory);
  EXPECT_EQ(communicator.launched, (std::vector<std::size_t>{1}));
  reducer.skip(1);
  reducer.skip(0);
  EXPECT_EQ(communicator.launched, (std::vector<std::size_t>{1}));
  reducer.finish();
}

TEST(Reducer, RefusesToFinishBeforeAllIsThere) {
  CountingCommunicator communicator;
  Reducer reducer(communicator, floats({4}));
  EXPECT_THROW(reducer.finish(), InternalError);
}

}  // namespace
}  // namespace tandem
