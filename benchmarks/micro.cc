// The cost of an operation besides its arithmetic: dispatch, recording, the backward pass, memory.
// To compare with libtorch in C++ (docs/benchmarks.md): add 490 ns, recorded 800 to 880 ns,
// backward 1,100 ns, allocation 220 ns.
#include <benchmark/benchmark.h>
#include <tandem/tandem.h>

#include <memory>

namespace td = tandem;

namespace {

// One element: all but a nanosecond or two of it is dispatch.
void add(benchmark::State& state) {
  const td::Tensor a = td::ones({1}), b = td::ones({1});
  for (auto _ : state) benchmark::DoNotOptimize(td::add(a, b));
}
BENCHMARK(add);

void add_in_a_device_scope(benchmark::State& state) {
  const td::DeviceScope scope("/cpu:0");
  const td::Tensor a = td::ones({1}), b = td::ones({1});
  for (auto _ : state) benchmark::DoNotOptimize(td::add(a, b));
}
BENCHMARK(add_in_a_device_scope);

void add_recorded(benchmark::State& state) {
  const td::Tensor a = td::ones({1}).set_requires_grad(), b = td::ones({1});
  for (auto _ : state) benchmark::DoNotOptimize(td::add(a, b));
}
BENCHMARK(add_recorded);

void add_and_backward(benchmark::State& state) {
  td::Tensor a = td::ones({1}).set_requires_grad();
  const td::Tensor b = td::ones({1}), seed = td::ones({1});
  for (auto _ : state) {
    td::add(a, b).backward(seed);
    a.zero_grad();
  }
}
BENCHMARK(add_and_backward);

// A chain, so that starting the backward pass hardly counts.
void backward_an_operation(benchmark::State& state) {
  constexpr int kLength = 64;
  td::Tensor a = td::ones({1}).set_requires_grad();
  const td::Tensor b = td::ones({1}), seed = td::ones({1});
  for (auto _ : state) {
    state.PauseTiming();
    td::Tensor x = a;
    for (int i = 0; i < kLength; ++i) x = td::add(x, b);
    a.zero_grad();
    state.ResumeTiming();
    x.backward(seed);
  }
  state.SetItemsProcessed(state.iterations() * kLength);
}
BENCHMARK(backward_an_operation);

void allocate(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(td::zeros({state.range(0)}));
  state.SetBytesProcessed(state.iterations() * state.range(0) * 4);
}
BENCHMARK(allocate)->Arg(1)->Arg(1024)->Arg(1 << 18);

void matmul_small(benchmark::State& state) {
  const td::Tensor a = td::ones({8, 8}), b = td::ones({8, 8});
  for (auto _ : state) benchmark::DoNotOptimize(td::matmul(a, b));
}
BENCHMARK(matmul_small);

void add_elements(benchmark::State& state) {
  const td::Tensor a = td::ones({state.range(0)}), b = td::ones({state.range(0)});
  for (auto _ : state) benchmark::DoNotOptimize(td::add(a, b));
  state.SetBytesProcessed(state.iterations() * state.range(0) * 12);
}
BENCHMARK(add_elements)->RangeMultiplier(16)->Range(1 << 8, 1 << 24)->UseRealTime();

// --- one function and one session for one caller and for two: each call of all of them ---

constexpr std::int64_t kWidth = 128;

struct SmallModel {
  td::Tensor first = td::ones({kWidth, kWidth}), second = td::ones({kWidth, 10});

  td::Tensor operator()(const td::Tensor& x) const {
    return td::matmul(td::nn::relu(td::matmul(x, first)), second);
  }
};

void call_function(benchmark::State& state) {
  static const auto function = td::function(SmallModel());
  const td::NoGradScope no_grad;
  const td::Tensor x = td::ones({1, kWidth});
  for (auto _ : state) benchmark::DoNotOptimize(function(x));
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(call_function)->ThreadRange(1, 2)->UseRealTime();

void run_session(benchmark::State& state) {
  struct InSession {
    td::Tensor x, y;
    std::unique_ptr<td::Session> session;
    InSession() {
      const SmallModel model;
      const td::Graph graph;
      {
        const td::GraphScope building(graph);
        x = td::placeholder(td::float32, {-1, kWidth});
        y = model(x);
      }
      session = std::make_unique<td::Session>(graph);
    }
  };
  static const InSession shared;
  const td::Tensor x = td::ones({1, kWidth});
  for (auto _ : state) benchmark::DoNotOptimize(shared.session->run({{shared.x, x}}, shared.y));
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(run_session)->ThreadRange(1, 2)->UseRealTime();

}  // namespace

BENCHMARK_MAIN();
