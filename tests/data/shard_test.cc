// shard() and the transformations before it.
#include "data/selection.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <limits>

#include "data/node.h"
#include "data/pipelines.h"
#include "support/tensors.h"
#include "tandem/math.h"
#include "tandem/random.h"

namespace tandem::shard_test {
namespace {

using data::AutoShardPolicy;
using data::Dataset;
using data::Example;
using namespace testing;

using Values = std::vector<std::int32_t>;

// Workers of a parallel map and the thread of prefetch() run ahead of the consumer: they must know
// which elements it will skip.
TEST(Shard, DoesNotRunMapsOnOtherShards) {
  std::atomic<int> calls = 0;
  const data::MapFn noise = [&](const Example& e) {
    ++calls;
    return Example{e[0] + random::normal({}, 0.0, 1.0)};
  };
  const auto parallel = [&](const Dataset& d) { return d.map(noise, {.num_parallel_calls = 4}); };
  const auto sequential = [&](const Dataset& d) { return d.map(noise); };
  using Data = const Dataset&;
  struct Case {
    std::function<Dataset(Data)> before;  // shard()
    int calls;                            // per element
    int batch;
  };
  const Case cases[] = {
      {parallel, 1, 1},
      {[&](Data d) { return sequential(d).prefetch(3); }, 1, 1},
      {[&](Data d) { return sequential(parallel(d)); }, 2, 1},
      {[&](Data d) { return parallel(parallel(d).prefetch(2)); }, 2, 1},
      {[&](Data d) { return parallel(d).batch(4); }, 1, 4},
      {[&](Data d) { return parallel(d).batch(4).prefetch(2); }, 1, 4},
      {[&](Data d) { return parallel(d.take(100)).batch(2).batch(2).prefetch(2); }, 1, 4},
      {[&](Data d) { return parallel(d).skip(0).take(103); }, 1, 1},
      {[&](Data d) { return parallel(d.take(100)).with_auto_shard(AutoShardPolicy::kOff); }, 1, 1},
  };
  const auto values = [](const Dataset& data, std::int64_t skip) {
    std::vector<std::vector<float>> all;
    auto iterator = data.iterate({.epoch = 1, .skip = skip});
    while (const auto e = iterator.next()) all.push_back(e[0].to_vector<float>());
    return all;
  };
  const Dataset floats = Dataset::from_tensor_slices(range(103, {.dtype = float32}));
  for (const Case& each : cases) {
    const auto at = [&] { return fmt::format("case {}", &each - cases); };
    random::set_seed(3);
    const Dataset whole = each.before(floats);
    const auto all = values(whole, 0);
    for (const std::int64_t shards : {1, 2, 7, 200})
      for (const std::int64_t index : {std::int64_t{0}, shards / 2, shards - 1}) {
        std::vector<std::vector<float>> expected;
        std::size_t elements = 0;
        for (auto i = static_cast<std::size_t>(index); i < all.size();
             i += static_cast<std::size_t>(shards)) {
          expected.push_back(all[i]);
          elements += all[i].size();
        }
        const Dataset shard = whole.shard(shards, index);
        calls = 0;
        EXPECT_EQ(values(shard, 0), expected) << at() << ", shard " << index << " of " << shards;
        EXPECT_EQ(calls, each.calls * static_cast<int>(elements)) << at();
        if (expected.size() < 3) continue;
        expected.erase(expected.begin(), expected.begin() + 2);
        calls = 0;
        EXPECT_EQ(values(shard, 2), expected) << at() << ", resumed";
        EXPECT_EQ(calls, each.calls * (static_cast<int>(elements) - 2 * each.batch)) << at();
      }
  }
}

// Skips of several sizes in the middle of a run, and beyond the end.
TEST(Shard, SelectedRunsCanBeSkipped) {
  const Values all = count_up(0, 53);
  const Dataset source = numbers(53);
  for (const data::Selection selection :
       {data::Selection{0, 1, 1}, {5, 1, 3}, {2, 3, 7}, {0, 4, 4}, {60, 2, 9}, {8, 5, 1000}}) {
    Values expected;
    for (const std::int32_t value : all)
      if (value >= selection.first && (value - selection.first) % selection.step < selection.kept)
        expected.push_back(value);
    EXPECT_EQ(selection.size(53), std::ssize(expected));
    for (const std::int64_t skip : {std::int64_t{1}, std::int64_t{2}, std::int64_t{5},
                                    std::numeric_limits<std::int64_t>::max()})
      for (std::int64_t read = 0; read < 5; ++read) {
        data::SelectedStream<Example> stream(source.node()->elements(0), selection);
        std::int64_t index = 0;
        const auto expect_next = [&] {
          Example e;
          const bool any = stream.next(e);
          ASSERT_EQ(any, index < std::ssize(expected));
          if (!any) return;
          EXPECT_EQ(values_in(e)[0], expected[static_cast<std::size_t>(index)]);
          EXPECT_EQ(selection.place(index++), values_in(e)[0]);
        };
        for (std::int64_t i = 0; i < read; ++i) expect_next();
        const std::int64_t skipped = std::min(skip, std::ssize(expected) - index);
        EXPECT_EQ(stream.skip(skip), skipped);
        index += skipped;
        for (int i = 0; i < 4; ++i) expect_next();
      }
  }
}

}  // namespace
}  // namespace tandem::shard_test
