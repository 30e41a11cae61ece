// A variable whose elements and slots another thread owns. It needs a storage and one operation for
// traces.
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <future>
#include <memory>
#include <mutex>
#include <thread>

#include "core/status.h"
#include "device/device_manager.h"
#include "graph/graph.h"
#include "op/fields.h"
#include "runtime/dispatch.h"
#include "runtime/variable_impl.h"
#include "tandem/tandem.h"

namespace tandem::remote_variable_test {
namespace {

// Owns tensors that only its thread uses. Arguments and results are copied.
class Server {
 public:
  Server() : thread_([this] { serve(); }) {}
  ~Server() {
    post({});
    thread_.join();
  }

  std::size_t hold(const Tensor& value) {
    return ask([this, copy = copy_of(value)] {
      tensors_.push_back(copy);
      return tensors_.size() - 1;
    });
  }
  Tensor fetch(std::size_t id) {
    return ask([this, id] {
      ++fetches;
      return copy_of(tensors_[id]);
    });
  }
  void store(std::size_t id, const Tensor& value) {
    ask([this, id, copy = copy_of(value)] { return copy_into(tensors_[id], copy), 0; });
  }

  // An update: the variable, its slots and the rule.
  struct Update {
    std::size_t id;
    std::vector<std::size_t> slots;
    std::shared_ptr<const VariableUpdate> rule;  // null if it is sent with the gradient
  };
  void apply(const Update& update, const VariableUpdate& rule, const Tensor& gradient) {
    ask([this, &update, &rule, copy = copy_of(gradient)] {
      ++updates;
      std::vector<Tensor> slots;
      for (const std::size_t slot : update.slots) slots.push_back(tensors_[slot]);
      rule.apply(tensors_[update.id], copy, slots);
      return 0;
    });
  }

  std::size_t tensors() {
    return ask([this] { return tensors_.size(); });
  }

  int fetches = 0, updates = 0;
  std::deque<Update> traced;  // updates in programs

 private:
  static Tensor copy_of(const Tensor& tensor) {
    DeviceImpl& host = DeviceManager::get().host();
    const Tensor copy = make_tensor(host, tensor.shape(), tensor.dtype());
    copy_into(copy, tensor);
    return copy;
  }

  template <class F>
  auto ask(const F& work) -> decltype(work()) {
    std::promise<decltype(work())> answer;
    auto coming = answer.get_future();
    post([&] {
      try {
        answer.set_value(work());
      } catch (...) {
        answer.set_exception(std::current_exception());
      }
    });
    // The work refers to this frame, so a timeout must end the process.
    if (coming.wait_for(std::chrono::seconds(60)) != std::future_status::ready) std::abort();
    return coming.get();
  }

  void post(std::function<void()> work) {
    {
      const std::lock_guard lock(mutex_);
      queue_.push_back(std::move(work));
    }
    more_.notify_one();
  }

  void serve() {
    for (;;) {
      std::unique_lock lock(mutex_);
      more_.wait(lock, [&] { return !queue_.empty(); });
      const std::function<void()> work = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      if (!work) return;
      work();
    }
  }

  std::mutex mutex_;
  std::condition_variable more_;
  std::deque<std::function<void()>> queue_;
  std::vector<Tensor> tensors_;
  std::thread thread_;
};

struct PushAttrs {
  std::int64_t server = 0;  // its address
  std::int64_t update = 0;  // index in Server::traced
  TANDEM_FIELDS(server, update)
};

// Sends the gradient and fetches the updated variable, for reads that follow the update in the
// program.
void push_kernel(KernelContext& context) {
  const PushAttrs& attrs = context.attrs<PushAttrs>();
  Server& server = *reinterpret_cast<Server*>(attrs.server);
  const Server::Update& update = server.traced[static_cast<std::size_t>(attrs.update)];
  const TensorView& given = context.inputs[1];
  const Tensor gradient =
      from_host(DeviceManager::get().host(), given.shape, given.dtype, given.data);
  server.apply(update, *update.rule, gradient);
  to_host(server.fetch(update.id), context.inputs[0].data);
}

constexpr OpDef kPush = {.name = "PushToServer",
                         .attrs = &attrs_type<PushAttrs>,
                         .infer = [](InferContext&) {},
                         .cpu_kernel = push_kernel,
                         .gpu = false,
                         .traits = kStateful,
                         .mutated_inputs = 1u};

DeviceImpl* host() { return &DeviceManager::get().host(); }

class RemoteStorage final : public VariableStorage {
 public:
  RemoteStorage(std::shared_ptr<Server> server, const Tensor& initial_value, bool trainable)
      : VariableStorage(std::vector<DeviceImpl*>{host()}, 1, trainable),
        server_(std::move(server)),
        id_(server_->hold(initial_value)) {}

  DeviceImpl& home(std::size_t reader) const override { return device(reader); }
  const void* identity(std::size_t) const override { return this; }
  Tensor value(std::size_t reader) override { return of_reader(reader, server_->fetch(id_)); }
  Tensor writable(std::size_t reader) override { return value(reader); }
  void store(std::size_t, const Tensor& value) override { server_->store(id_, value); }

  bool update(VariableImpl& variable, std::size_t reader, const VariableUpdate& rule,
              const Tensor& gradient, std::span<VariableStorage* const> slots) override {
    Server::Update update{.id = id_, .slots = {}, .rule = nullptr};
    for (VariableStorage* slot : slots)
      update.slots.push_back(dynamic_cast<RemoteStorage&>(*slot).id_);
    if (!context.graph) {
      server_->apply(update, rule, gradient);
      return true;
    }
    update.rule = rule.for_runs();
    server_->traced.push_back(std::move(update));
    const PushAttrs attrs{.server = reinterpret_cast<std::int64_t>(server_.get()),
                          .update = std::ssize(server_->traced) - 1};
    const std::shared_ptr<const AttrUpdate> none;  // the rule has its step already
    const Scoped no_update(context.attr_update, &none);
    const Tensor handle = variable.memory(reader);
    const Tensor* inputs[] = {&handle, &gradient};
    run_update(kPush, inputs, attrs);
    return true;
  }

  std::unique_ptr<VariableStorage> make_like(const Tensor& initial_value, bool trainable,
                                             MemoryTag) const override {
    return std::make_unique<RemoteStorage>(server_, initial_value, trainable);
  }

 private:
  const std::shared_ptr<Server> server_;
  const std::size_t id_;
};

// Creates variables of this thread or of a server.
struct Maker {
  std::shared_ptr<Server> server;  // null for variables of this thread

  Variable operator()(const Tensor& value, const char* name) const {
    if (!server) return Variable(value, {.name = name});
    return Variable(make_ref<VariableImpl>(std::make_unique<RemoteStorage>(server, value, true),
                                           impl_of(value), VariableOptions{.name = name}));
  }
};

// Fits a line by SGD with momentum and a decaying rate.
struct Line {
  explicit Line(const Maker& make)
      : w(make(constant({{0.5f}, {-0.25f}}), "w")), b(make(constant({0.125f}), "b")) {}

  Tensor step(const Tensor& x, const Tensor& y) {
    const Tensor loss = reduce_mean(square(matmul(x, w) + b - y));
    optimizer.minimize(loss, {w, b});
    return loss;
  }

  std::vector<float> state() const {
    std::vector<float> all;
    for (const std::vector<Variable>& variables :
         {std::vector<Variable>{w, b}, optimizer.variables()})
      for (const Variable& variable : variables)
        if (variable.dtype() == float32)
          for (const float value : variable.value().to_vector<float>()) all.push_back(value);
    return all;
  }

  Variable w, b;
  optimizers::Optimizer optimizer = optimizers::SGD(
      {.learning_rate = optimizers::schedules::exponential_decay(0.1, 2, 0.5), .momentum = 0.9});
};

Tensor inputs() { return constant({{1.0f, 2.0f}, {-1.0f, 0.5f}, {0.25f, -3.0f}}); }
Tensor targets() { return constant({{1.0f}, {0.5f}, {-2.0f}}); }

TEST(RemoteVariable, IsReadAndAssignedOnItsServer) {
  const DeviceScope cpu("/cpu:0");
  const auto server = std::make_shared<Server>();
  Variable v = Maker{server}(constant({1.0f, 2.0f}), "v");
  EXPECT_EQ(v.value().to_vector<float>(), (std::vector<float>{1, 2}));
  v.assign(constant({3.0f, 4.0f}));
  v.assign_add(constant({1.0f, 1.0f}));
  server->store(0, v.value() * constant(2.0f));  // by another client
  EXPECT_EQ(v.value().to_vector<float>(), (std::vector<float>{8, 10}));
}

TEST(RemoteVariable, EagerStepsHaveTheBitsOfALocalOne) {
  const DeviceScope cpu("/cpu:0");
  const auto server = std::make_shared<Server>();
  Line remote(Maker{server}), local(Maker{});
  for (int i = 0; i < 5; ++i)
    EXPECT_EQ(remote.step(inputs(), targets()).item<float>(),
              local.step(inputs(), targets()).item<float>());
  EXPECT_EQ(server->tensors(), 4u);  // two variables, and a slot of each
  EXPECT_EQ(server->updates, 10);
  EXPECT_EQ(server->fetches, 10);  // by the steps
  EXPECT_EQ(remote.state(), local.state());
}

TEST(RemoteVariable, TracedStepsHaveTheBitsOfALocalOne) {
  const DeviceScope cpu("/cpu:0");
  const auto server = std::make_shared<Server>();
  Line remote(Maker{server}), local(Maker{});
  // Two steps in a call: the second reads the result of the first.
  const auto twice = [](Line& line) {
    return function([&line](const Tensor& x, const Tensor& y) {
      const Tensor first = line.step(x, y);
      return first + line.step(x, y) + reduce_sum(line.w);
    });
  };
  const auto on_server = twice(remote), here = twice(local);
  for (int i = 0; i < 4; ++i)
    EXPECT_EQ(on_server(inputs(), targets()).item<float>(),
              here(inputs(), targets()).item<float>());
  EXPECT_EQ(on_server.num_traces(), 1u);
  EXPECT_EQ(server->updates, 4 * 4);
  EXPECT_EQ(remote.state(), local.state());
  // Each run reads the current value, which others may have changed.
  for (const Line* line : {&remote, &local}) Variable(line->b).assign(constant({-1.0f}));
  EXPECT_EQ(on_server(inputs(), targets()).item<float>(), here(inputs(), targets()).item<float>());
}

TEST(RemoteVariable, TracedAssignmentsReachTheServer) {
  const DeviceScope cpu("/cpu:0");
  const auto server = std::make_shared<Server>();
  Variable v = Maker{server}(constant({1.0f, 2.0f}), "v");
  const auto add = function([&](const Tensor& x) {
    v.assign_add(x);
    return v * 2.0;
  });
  add(constant({1.0f, 1.0f}));
  EXPECT_EQ(add(constant({1.0f, 0.0f})).to_vector<float>(), (std::vector<float>{6, 6}));
  EXPECT_EQ(server->fetch(0).to_vector<float>(), (std::vector<float>{3, 3}));
}

}  // namespace
}  // namespace tandem::remote_variable_test
