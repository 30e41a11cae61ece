// Reductions are exact to the bit, for each backend and number of ranks.
#include "comm/conformance.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "comm/numbers.h"
#include "tandem/errors.h"

namespace tandem::conformance_arithmetic_test {
namespace {

// Numbers whose sums are rounded.
template <class T>
T rough(int rank, std::int64_t i) {
  return static_cast<T>(static_cast<float>((i * 31 + rank * 17) % 97 - 48) * 0.37f +
                        1.0f / static_cast<float>(rank + 2));
}

// The tree of ReduceOp::kTreeSum, from its root: the largest power of two of ranks that is below
// `end - begin`, and the remaining ranks.
template <class T>
T tree_sum(int begin, int end, std::int64_t i) {
  if (end - begin == 1) return rough<T>(begin, i);
  int half = 1;
  while (2 * half < end - begin) half *= 2;
  const T a = tree_sum<T>(begin, begin + half, i), b = tree_sum<T>(begin + half, end, i);
  if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>)
    return static_cast<T>(static_cast<float>(a) + static_cast<float>(b));
  else
    return a + b;
}

template <class T>
void check_tree_sum(Communicator& communicator, std::int64_t length) {
  const int ranks = communicator.size(), me = communicator.rank();
  const Array array(communicator, length % 2 == 0, length, dtype_of<T>);
  const auto fill_roughly = [&] {
    for (std::int64_t i = 0; i < length; ++i) array.data<T>()[i] = rough<T>(me, i);
  };
  const auto expected = [&](std::int64_t i) { return tree_sum<T>(0, ranks, i); };
  const Buffer buffer = array.all();
  fill_roughly();
  communicator.all_reduce({&buffer, 1}, ReduceOp::kTreeSum)->wait();
  expect_elements<T>(buffer, "all_reduce by a tree", expected);
  fill_roughly();
  communicator.reduce({&buffer, 1}, ReduceOp::kTreeSum, ranks - 1)->wait();
  if (me == ranks - 1) expect_elements<T>(buffer, "reduce by a tree", expected);
}

TEST_P(Conformance, ATreeSumIsThatOfOneTree) {
  run([may_refuse = !backend().sums_in_order](Communicator& communicator) {
    try {
      for (const std::int64_t length : {1, 300, 65'539}) {
        check_tree_sum<float>(communicator, length);
        check_tree_sum<double>(communicator, length);
        check_tree_sum<Half>(communicator, length);
        check_tree_sum<BFloat16>(communicator, length);
        check_tree_sum<std::int32_t>(communicator, length);
      }
    } catch (const UnimplementedError& error) {
      EXPECT_TRUE(may_refuse) << error.what();
      EXPECT_NE(std::string(error.what()).find("a tree sum over"), std::string::npos)
          << error.what();
    }
  });
}

template <class T>
void check_nan(Communicator& communicator, int origin, std::int64_t length, bool allocated) {
  for (ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax}) {
    const Array array(communicator, allocated, length, dtype_of<T>);
    for (std::int64_t i = 0; i < length; ++i) {
      const bool nan = communicator.rank() == origin && i % 2 == 1;
      array.data<T>()[i] = static_cast<T>(nan ? std::nanf("") : 1.0f);
    }
    const Buffer buffer = array.all();
    communicator.all_reduce({&buffer, 1}, op)->wait();
    for (std::int64_t i = 0; i < length; ++i)
      ASSERT_EQ(std::isnan(static_cast<float>(array.data<T>()[i])), i % 2 == 1)
          << (op == ReduceOp::kMin ? "min" : "max") << " of " << name_of(buffer.dtype) << ", rank "
          << origin << "'s " << i;
  }
}

TEST_P(Conformance, AMinimumOrMaximumWithANaNOfAnyRankIsNaN) {
  if (backend().name == "nccl") GTEST_SKIP() << "NCCL's own";
  run([](Communicator& communicator) {
    for (int origin = 0; origin < communicator.size(); ++origin)
      for (std::int64_t length : {2, 20'011}) {
        check_nan<float>(communicator, origin, length, false);
        check_nan<double>(communicator, origin, length, true);
        check_nan<Half>(communicator, origin, length, false);
        check_nan<BFloat16>(communicator, origin, length, true);
      }
  });
}

TEST_P(Conformance, AMeanOfIntegersIsThatOfTheirWholeSum) {
  if (!backend().sums_in_order) GTEST_SKIP() << "sums in the elements' type";
  run([](Communicator& communicator) {
    for (std::int64_t length : {3, 20'011}) {
      const Array bytes(communicator, false, length, uint8),
          words(communicator, true, length, int32);
      std::fill_n(bytes.data<std::uint8_t>(), length, std::uint8_t{200});
      std::fill_n(words.data<std::int32_t>(), length, -2'000'000'000);
      for (const Array* array : {&bytes, &words}) {
        const Buffer buffer = array->all();
        communicator.all_reduce({&buffer, 1}, ReduceOp::kMean)->wait();
      }
      EXPECT_EQ(std::count(bytes.data<std::uint8_t>(), bytes.data<std::uint8_t>() + length, 200),
                length);
      EXPECT_EQ(std::count(words.data<std::int32_t>(), words.data<std::int32_t>() + length,
                           -2'000'000'000),
                length);
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
        // Equal on every rank.
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

}  // namespace
}  // namespace tandem::conformance_arithmetic_test
