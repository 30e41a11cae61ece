// Updates of some rows of a variable, as a parameter server applies them.
#include <gtest/gtest.h>

#include <cmath>

#include "ps/in_process.h"
#include "support/tensors.h"

namespace tandem::ps::row_updates_test {
namespace {

using tandem::testing::expect_error;
using testing::trace;
using testing::variable_3;

// The update of a step of an optimizer with the gradient of a look-up; variable 3 has 4 rows.
SplitFunction split_step(optimizers::Optimizer optimizer) {
  Variable v(zeros({4, 2}), {.name = "v"});
  const auto traced = trace(
      [&](const auto& inputs) {
        optimizer.minimize(reduce_sum(gather(v, inputs[0], 0)), {v});
        return std::vector<Tensor>();
      },
      {constant({1, 2})});
  SplitFunction function = split(*traced, variable_3);
  // The node belongs to the trace, which ends here.
  function.update_attributes = {};
  return function;
}

Tensor numbers(std::vector<std::int64_t> list) { return constant(list); }

class RowUpdates : public ::testing::Test {
 protected:
  explicit RowUpdates(double rate = 1.0) {
    store.create(3, "v", zeros({4, 2}));
    store.add_update(0, 0, part(rate));
  }
  // v -= rate * gradient.
  static proto::Part part(double rate) {
    proto::Part part = split_step(optimizers::SGD(rate)).message.updates(0).part();
    part.clear_attributes();  // those of the trace are used
    return part;
  }
  void apply(ParameterStore& to, std::uint64_t closure, const std::vector<Tensor>& inputs) {
    to.apply(0, 0, closure, inputs, {});
  }
  std::vector<float> elements() const { return store.read(3).value.to_vector<float>(); }

  ParameterStore store;
};

TEST_F(RowUpdates, ChangeTheirRows) {
  apply(store, 0, {numbers({0, 3}), constant({{1.0f, 2.0f}, {3.0f, 4.0f}})});
  EXPECT_EQ(elements(), (std::vector<float>{-1, -2, 0, 0, 0, 0, -3, -4}));
  apply(store, 1, {numbers({}), zeros({0, 2})});
  apply(store, 1, {numbers({3}), ones({1, 2})});  // a repeated closure
  EXPECT_EQ(elements(), (std::vector<float>{-1, -2, 0, 0, 0, 0, -3, -4}));
  EXPECT_EQ(store.read(3).version, 2u);
}

// An infinite learning rate would make NaNs of the gradients that are 0.
TEST_F(RowUpdates, DoNotTouchOtherRows) {
  ParameterStore other;
  other.create(3, "v", ones({4, 2}));
  other.add_update(0, 0, part(1e39));
  apply(other, 0, {numbers({1}), constant({{1.0f, -1.0f}})});
  const std::vector<float> result = other.read(3).value.to_vector<float>();
  for (const std::size_t i : {0u, 1u, 4u, 5u, 6u, 7u}) EXPECT_EQ(result[i], 1);
  EXPECT_EQ(result[2], -INFINITY);
  EXPECT_EQ(result[3], INFINITY);
}

TEST_F(RowUpdates, ReadersKeepWhatTheyRead) {
  const Tensor before = store.read(3).value, row = store.read_rows(3, numbers({0})).value;
  apply(store, 0, {numbers({0}), ones({1, 2})});
  EXPECT_EQ(before.to_vector<float>(), std::vector<float>(8, 0));
  EXPECT_EQ(row.to_vector<float>(), std::vector<float>(2, 0));
  EXPECT_EQ(store.read_rows(3, numbers({0})).value.to_vector<float>(), std::vector<float>(2, -1));
}

TEST_F(RowUpdates, InvalidRowsAreRefusedAndChangeNothing) {
  const auto refused = [&](const std::vector<Tensor>& inputs, const std::string& text) {
    expect_error<InvalidArgumentError>([&] { apply(store, 0, inputs); }, text);
    EXPECT_EQ(elements(), std::vector<float>(8, 0));
  };
  refused({ones({4, 2})}, "expected 2 inputs, got 1");
  refused({numbers({4}), ones({1, 2})}, "expected row numbers of [0, 4), got 4 at position 0");
  refused({numbers({-1}), ones({1, 2})}, "expected row numbers of [0, 4), got -1 at position 0");
  refused({numbers({2, 1}), ones({2, 2})}, "expected row numbers that ascend");
  refused({numbers({1, 1}), ones({2, 2})}, "expected row numbers that ascend");
  refused({constant({1}), ones({1, 2})}, "expected row numbers of int64 and one axis");
  refused({numbers({1}), ones({2, 2})},
          "expected rows of shape (1, 2) and dtype float32, got (2, 2) and float32");
  refused({numbers({1}), ones({1, 2}, {.dtype = float64})},
          "expected rows of shape (1, 2) and dtype float32, got (1, 2) and float64");
}

TEST_F(RowUpdates, InvalidSparseFeedsAreRefused) {
  const auto refused = [&](const std::function<void(proto::Part&)>& change) {
    proto::Part changed = part(1.0);
    change(changed);
    EXPECT_THROW(store.add_update(0, 1, changed), InvalidArgumentError);
  };
  refused([](proto::Part& part) { part.add_sparse_feeds(1); });
  refused([](proto::Part& part) { part.add_sparse_feeds(0); });
}

}  // namespace
}  // namespace tandem::ps::row_updates_test
