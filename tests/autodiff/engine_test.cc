#include "autodiff/engine.h"

#include <gtest/gtest.h>

#include "runtime/gradient_buffer.h"
#include "runtime/variable_impl.h"
#include "support/gpus.h"
#include "support/tensors.h"
#include "tandem/tandem.h"

namespace tandem::engine_test {
namespace {

GradEdge edge_of(const Variable& variable) { return impl_of(variable.value()).grad; }

TEST(RunBackward, ReportsGradientsAsSoonAsTheyAreComplete) {
  const Variable first(constant(2.0)), second(constant(3.0)), third(constant(5.0));
  const Tensor loss = (first * first) * second * third;  // third's gradient comes first
  std::vector<std::size_t> order;
  BackwardPass pass;
  pass.roots = {{impl_of(loss).grad, ones({})}};
  pass.sources = {edge_of(first), edge_of(second), edge_of(third)};
  std::vector<float> values(3);
  pass.on_ready = [&](std::size_t source, Tensor gradient) {
    order.push_back(source);
    values[source] = gradient.item<float>();
  };
  const auto results = run_backward(pass);
  EXPECT_EQ(order, (std::vector<std::size_t>{2, 1, 0}));
  EXPECT_EQ(values, (std::vector<float>{60.0f, 20.0f, 12.0f}));
  for (const Tensor& result : results) EXPECT_FALSE(result.defined());
}

TEST(RunBackward, WaitsForEveryUseBeforeReporting) {
  const Variable shared(constant(2.0)), other(constant(3.0));
  const Tensor loss = shared * other + shared * shared;
  std::vector<std::size_t> order;
  BackwardPass pass;
  pass.roots = {{impl_of(loss).grad, ones({})}};
  pass.sources = {edge_of(shared), edge_of(other)};
  float gradient_of_shared = 0;
  pass.on_ready = [&](std::size_t source, Tensor gradient) {
    order.push_back(source);
    if (source == 0) gradient_of_shared = gradient.item<float>();
  };
  run_backward(pass);
  EXPECT_EQ(order.size(), 2u);
  EXPECT_FLOAT_EQ(gradient_of_shared, 7.0f);
}

TEST(RunBackward, CallsTheHooksOfLeaves) {
  const Variable w(constant(4.0));
  std::vector<float> seen;
  w.impl().leaf()->on_grad_ready.push_back(
      [&](Leaf& leaf) { seen.push_back(leaf.grad().item<float>()); });
  (w * w).backward();
  EXPECT_EQ(seen, (std::vector<float>{8.0f}));
}

TEST(RunBackward, HooksOfLeavesMayRegisterActionsAtTheEnd) {
  const Variable first(constant(4.0)), second(constant(2.0));
  std::vector<std::string> seen;
  const auto watch = [&](const Variable& variable, const std::string& name) {
    variable.impl().leaf()->on_grad_ready.push_back([&seen, name](Leaf&) {
      seen.push_back(name);
      after_backward([&seen, name](bool completed) {
        seen.push_back(name + (completed ? " done" : " failed"));
      });
    });
  };
  watch(first, "first");
  watch(second, "second");
  (square(first) * second).backward();
  EXPECT_EQ(seen, (std::vector<std::string>{"second", "first", "second done", "first done"}));
}

TEST(RunBackward, ActionsAtTheEndAreNotifiedOfAFailure) {
  const Variable w(constant(4.0)), late(constant(2.0));
  std::vector<bool> completed;
  late.impl().leaf()->on_grad_ready.push_back(
      [&](Leaf&) { after_backward([&](bool whole) { completed.push_back(whole); }); });
  w.impl().leaf()->on_grad_ready.push_back([](Leaf&) { throw RuntimeError("no"); });
  EXPECT_THROW((square(w) * late).backward(), RuntimeError);
  EXPECT_EQ(completed, (std::vector<bool>{false}));
  EXPECT_THROW(after_backward([](bool) {}), InternalError);
}

// A buffer for the gradient of a kernel [3, 2], used by backward().
class GradientBuffer : public ::testing::Test {
 protected:
  GradientBuffer() {
    set_gradient_buffer(*leaf(), [this] {
      ++asked_;
      return impl_of(place_).unique() ? place_ : Tensor();
    });
  }
  ~GradientBuffer() override { set_gradient_buffer(*leaf(), nullptr); }
  RefPtr<Leaf> leaf() const { return kernel_.impl().leaf(); }
  Tensor product(float value) const { return dense_(full({4, 3}, value)); }

  Layer dense_ = [] {
    const Layer dense = layers::Dense(2, {.input_shape = {3}});
    const Shape shapes[] = {{-1, 3}};
    dense.base().ensure_built(shapes);
    return dense;
  }();
  Variable kernel_ = dense_.variables()[0];
  Tensor place_ = zeros({3, 2});
  int asked_ = 0;
};

TEST_F(GradientBuffer, TheGradientIsComputedInTheBuffer) {
  reduce_sum(product(2.0f)).backward();
  EXPECT_EQ(asked_, 1);
  EXPECT_TRUE(kernel_.grad().handle() == place_.handle());
  EXPECT_EQ(place_.to_vector<float>(), std::vector<float>(6, 8.0f));
  // The buffer is used now; another gradient is added elsewhere.
  reduce_sum(product(1.0f)).backward();
  EXPECT_EQ(place_.to_vector<float>(), std::vector<float>(6, 8.0f));
  EXPECT_EQ(kernel_.grad().to_vector<float>(), std::vector<float>(6, 12.0f));
}

TEST_F(GradientBuffer, AVariableWithSeveralUsesHasTheRightSum) {
  (reduce_sum(product(2.0f)) + reduce_sum(product(1.0f)) * 3.0).backward();
  EXPECT_EQ(kernel_.grad().to_vector<float>(), std::vector<float>(6, 20.0f));
}

TEST_F(GradientBuffer, OtherPassesDoNotUseTheBuffer) {
  reduce_sum(product(2.0f)).backward({.create_graph = true});
  GradientTape tape;
  EXPECT_EQ(tape.gradient(reduce_sum(product(2.0f)), kernel_).to_vector<float>(),
            std::vector<float>(6, 8.0f));
  EXPECT_EQ(asked_, 0);
  EXPECT_EQ(place_.to_vector<float>(), std::vector<float>(6, 0.0f));
}

TEST_F(GradientBuffer, APassForSourcesUsesItsOwnBuffers) {
  const Tensor result = reduce_sum(product(2.0f));
  BackwardPass pass;
  pass.roots = {{impl_of(result).grad, ones({})}};
  pass.sources = {{leaf(), 0}};
  Tensor place = zeros({3, 2});
  std::vector<std::size_t> asked;
  pass.buffer = [&](std::size_t source) {
    asked.push_back(source);
    return place;
  };
  EXPECT_TRUE(run_backward(pass).front().handle() == place.handle());
  EXPECT_EQ(asked, (std::vector<std::size_t>{0}));
  EXPECT_EQ(asked_, 0);
  EXPECT_EQ(place.to_vector<float>(), std::vector<float>(6, 8.0f));
}

TEST(RunBackward, AddsTheGradientsOfSeveralRoots) {
  const Variable w(constant(4.0));
  const Tensor a = w * 2.0, b = w * w;
  BackwardPass pass;
  pass.roots = {{impl_of(a).grad, ones({})}, {impl_of(b).grad, ones({})}};
  pass.sources = {edge_of(w)};
  EXPECT_FLOAT_EQ(run_backward(pass).front().item<float>(), 10.0f);
}

TEST(RunBackward, MayStopAtItsSources) {
  const Variable w(constant(3.0));
  const Tensor squared = w * w, cubed = squared * w;
  BackwardPass pass;
  pass.roots = {{impl_of(cubed).grad, ones({})}};
  pass.sources = {edge_of(w), impl_of(squared).grad};
  pass.retain_graph = true;
  auto found = run_backward(pass);
  EXPECT_FLOAT_EQ(found[0].item<float>(), 27.0f);
  EXPECT_FLOAT_EQ(found[1].item<float>(), 3.0f);
  pass.stop_at_sources = true;
  found = run_backward(pass);
  EXPECT_FLOAT_EQ(found[0].item<float>(), 9.0f);
  EXPECT_FLOAT_EQ(found[1].item<float>(), 3.0f);
}

TEST(RunBackward, GradientsAreOnTheDevicesOfTheirSources) {
  testing::use_gpus(2);
  Variable on_cpu, on_gpu;
  {
    DeviceScope cpu("/cpu:0");
    on_cpu = Variable(constant(2.0));
  }
  {
    DeviceScope gpu("/gpu:1");
    on_gpu = Variable(constant(3.0));
  }
  DeviceScope elsewhere("/gpu:0");
  (on_cpu * on_gpu).backward();
  EXPECT_EQ(on_cpu.grad().device(), on_cpu.device());
  EXPECT_EQ(on_gpu.grad().device(), on_gpu.device());
  EXPECT_FLOAT_EQ(on_cpu.grad().item<float>(), 3.0f);
  EXPECT_FLOAT_EQ(on_gpu.grad().item<float>(), 2.0f);
}

// Gradients are overwritten only if nothing else refers to them. Here, something does.
TEST(RunBackward, DoesNotOverwriteAGradientThatIsStillNeeded) {
  const Variable a(constant({1.0f, -1.0f})), b(constant({-1.0f, 1.0f}));
  const Tensor seed = constant({3.0f, 5.0f});
  const std::vector<float> three_zero{3, 0}, zero_five{0, 5};

  (nn::relu(a) + nn::relu(b)).backward(seed);  // both inputs of the sum get one gradient
  EXPECT_EQ(a.grad().to_vector<float>(), three_zero);
  EXPECT_EQ(b.grad().to_vector<float>(), zero_five);
  EXPECT_EQ(seed.to_vector<float>(), (std::vector<float>{3, 5}));

  const Tensor held = a.grad();
  nn::relu(a).backward(seed);  // adds to a's gradient
  EXPECT_EQ(a.grad().to_vector<float>(), (std::vector<float>{6, 0}));
  EXPECT_EQ(held.to_vector<float>(), three_zero);

  const Tensor x = nn::relu(a) * 2.0, y = nn::relu(x) + x + x;
  BackwardPass pass;
  pass.roots = {{impl_of(y).grad, seed}};
  pass.sources = {edge_of(a), impl_of(x).grad};
  const auto results = run_backward(pass);
  EXPECT_EQ(results[0].to_vector<float>(), (std::vector<float>{18, 0}));
  EXPECT_EQ(results[1].to_vector<float>(), (std::vector<float>{9, 10}));
}

TEST(Engine, AVariablesValueKeepsItsEdge) {
  Variable weight(ones({2})), frozen(ones({2}), {.trainable = false});
  Tensor value = weight.value(), fixed = frozen.value();
  testing::expect_error<InvalidArgumentError>(
      [&] { value.set_requires_grad(false); },
      "[set_requires_grad] expected a tensor that is no variable's value, got one of a trainable");
  testing::expect_error<InvalidArgumentError>([&] { fixed.set_requires_grad(); },
                                              "got one of an untrainable variable");
  EXPECT_TRUE(value.set_requires_grad().requires_grad());  // no change
  EXPECT_FALSE(fixed.set_requires_grad(false).requires_grad());
  // A detached tensor does not change the variable.
  Tensor own = frozen.value().detach();
  own.set_requires_grad();
  reduce_sum(own * frozen.value() * weight.value()).backward();
  EXPECT_TRUE(own.grad().defined());
  EXPECT_TRUE(weight.grad().defined());
  EXPECT_FALSE(frozen.value().requires_grad());
  // A tape may still watch it.
  {
    GradientTape tape;
    tape.watch(frozen);
    const Tensor y = reduce_sum(square(frozen.value()));
    EXPECT_EQ(tape.gradient(y, frozen).to_vector<float>(), std::vector<float>({2, 2}));
  }
  EXPECT_FALSE(frozen.value().requires_grad());
}

// Logged once per process, so the test runs in a process of its own.
TEST(Engine, ARecordedBackwardPassWarnsOfItsCycleOnce) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto twice = [] {
    for (int i = 0; i < 2; ++i) {
      Tensor x = ones({2}).set_requires_grad();
      reduce_sum(x * x).backward({.create_graph = true});
      x.zero_grad();
    }
    std::exit(0);
  };
  EXPECT_EXIT(twice(), ::testing::ExitedWithCode(0), "create_graph.*zero_grad");
}

// A recorded gradient refers to its leaf, which refers to the gradient, until zero_grad().
TEST(Engine, ZeroGradBreaksTheCycleOfARecordedBackwardPass) {
  const auto in_use = [] { return config::get_memory_info("CPU:0").current; };
  const DeviceScope on_cpu("/cpu:0");
  const auto before = in_use();
  for (int i = 0; i < 3; ++i) {
    Tensor x = ones({1 << 18});
    x.set_requires_grad();
    reduce_sum(x * x * x).backward({.create_graph = true});
    EXPECT_TRUE(x.grad().requires_grad());
    x.zero_grad();
  }
  EXPECT_EQ(in_use(), before);
  for (int i = 0; i < 3; ++i) {
    const Tensor x = ones({1 << 18});
    GradientTape outer, inner;
    outer.watch(x);
    inner.watch(x);
    const Tensor slope = inner.gradient(reduce_sum(x * x * x), x);
    EXPECT_TRUE(outer.gradient(slope, x).defined());
  }
  EXPECT_EQ(in_use(), before);
}

}  // namespace
}  // namespace tandem::engine_test
