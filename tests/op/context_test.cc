#include "op/context.h"

#include <gtest/gtest.h>

#include <thread>

#include "op/record.h"

namespace tandem::context_test {
namespace {

template <class T>
T* some_pointer() {
  alignas(std::max_align_t) static char place[1];
  return reinterpret_cast<T*>(place);
}

// A value of each member that is not its default.
template <class T>
void change(T*& member) {
  member = some_pointer<T>();
}
template <class T>
void change(std::optional<T>& member) {
  member = T{};
}
template <class T>
requires std::is_arithmetic_v<T>
void change(T& member) { member = member ? T{0} : T{1}; }

Context changed() {
  Context all;
  auto& [records, tapes, traced_gradients, differentiated, gradient_buffers, after_backward,
         open_buffer, graph, trace, attr_update, colocated_with, placement, autocast, cast_cache,
         weight_dtype, strategy, runner, replica, creator, copies, generator, weighted_by_examples,
         layer, training, own_call, nested_sums, cancelled, worker, first_element] = all;
  const auto change_all = [](auto&... members) { (change(members), ...); };
  change_all(records, tapes, traced_gradients, differentiated, gradient_buffers, after_backward,
             open_buffer, graph, trace, attr_update, colocated_with, placement, autocast,
             cast_cache, weight_dtype, strategy, runner, replica, creator, copies, generator,
             weighted_by_examples, layer, training, own_call, nested_sums, cancelled, worker,
             first_element);
  return all;
}

TEST(ContextForWorker, HasWhatResultsAndMessagesDependOn) {
  const Context caller = changed(), worker = for_worker(caller);
  EXPECT_FALSE(worker.records);
  EXPECT_EQ(worker.tapes, 1);
  EXPECT_EQ(worker.differentiated, caller.differentiated);
  EXPECT_TRUE(worker.autocast);
  EXPECT_TRUE(worker.weight_dtype);
  EXPECT_EQ(worker.strategy, caller.strategy);
  EXPECT_EQ(worker.runner, caller.runner);
  EXPECT_TRUE(worker.weighted_by_examples);
  EXPECT_EQ(worker.layer, caller.layer);
  EXPECT_TRUE(worker.training);
  EXPECT_EQ(worker.own_call, caller.own_call);
  EXPECT_EQ(worker.cancelled, caller.cancelled);
  EXPECT_EQ(worker.worker, 1u);
}

TEST(ContextForWorker, LacksWhatIsNotThreadSafe) {
  const Context worker = for_worker(changed());
  EXPECT_EQ(worker.traced_gradients, nullptr);
  EXPECT_EQ(worker.gradient_buffers, nullptr);
  EXPECT_EQ(worker.after_backward, nullptr);
  EXPECT_EQ(worker.open_buffer, nullptr);
  EXPECT_EQ(worker.graph, nullptr);
  EXPECT_EQ(worker.trace, nullptr);
  EXPECT_EQ(worker.attr_update, nullptr);
  EXPECT_EQ(worker.colocated_with, nullptr);
  EXPECT_EQ(worker.placement, nullptr);
  EXPECT_EQ(worker.cast_cache, nullptr);
  EXPECT_EQ(worker.replica, nullptr);
  EXPECT_EQ(worker.creator, nullptr);
  EXPECT_EQ(worker.copies, nullptr);
  EXPECT_EQ(worker.generator, nullptr);
  EXPECT_EQ(worker.nested_sums, nullptr);
  EXPECT_EQ(worker.first_element, 0);
}

TEST(Context, IsThatOfTheThread) {
  const Scoped scope(context.tapes, 3);
  int elsewhere = -1;
  std::thread([&] { elsewhere = context.tapes; }).join();
  EXPECT_EQ(elsewhere, 0);
  {
    const Scoped inner(context.tapes, 4);
    EXPECT_EQ(context.tapes, 4);
  }
  EXPECT_EQ(context.tapes, 3);
}

}  // namespace
}  // namespace tandem::context_test
