// A host that forks while other threads of it use Tandem. The child has copies of all locks that
// they hold at that moment: each use works, or throws at once.
#include <sys/wait.h>
#include <tandem/tandem.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace td = tandem;

namespace {

constexpr int kForks = 300;

// Sizes change from call to call, so that memory is allocated and primitives are made.
float product(int step) {
  const std::int64_t rows = 8 + step % 61;
  const td::Tensor x = td::ones({rows, 64}), y = td::ones({64, 32});
  return td::reduce_sum(td::matmul(x, y)).item<float>() / static_cast<float>(rows);
}

bool gradient_is_right(const td::Variable& w) {
  td::GradientTape tape;
  const td::Tensor loss = td::reduce_sum(w.value() * w.value());
  return tape.gradient(loss, w).to_vector<float>() == std::vector<float>{2, 4, 6};
}

double train() {
  td::Sequential model({td::layers::Dense(4, {.input_shape = {3}}), td::layers::Dense(1)});
  model.compile({.optimizer = "sgd", .loss = "mse"});
  return model.fit(td::ones({8, 3}), td::ones({8, 1}), {.verbose = 0}).history.at("loss").back();
}

std::int32_t sum_of_pipeline() {
  std::int32_t sum = 0;
  for (const td::data::Example& e : td::data::Dataset::from_tensor_slices({td::range(16)})
                                        .map([](const td::Tensor& x) { return x * 2; })
                                        .batch(4))
    sum += td::reduce_sum(e[0]).item<std::int32_t>();
  return sum;
}

struct Shared {
  // Its predictions take turns.
  td::Sequential model{{td::layers::Dense(4, {.input_shape = {3}}), td::layers::Dense(1)}};
  td::Variable weights{td::constant({1.0F, 2.0F, 3.0F})};
  // Has one instance at a time for each thread; a program with random numbers takes turns.
  std::function<td::Tensor(const td::Tensor&)> scaled = td::function(
      [](const td::Tensor& x) { return td::reduce_sum(td::matmul(x, td::transpose(x))); },
      {.input_signature = {{{-1, 16}, td::float32}}});
  std::function<td::Tensor(const td::Tensor&)> noisy =
      td::function([](const td::Tensor& x) { return x + td::random::normal({4}, 0.0, 1.0); });
  // Sessions of one graph take turns if its control flow has random numbers.
  td::Graph graph;
  td::Tensor input = input_in(graph), noised = noisy_in(graph, input);
  td::Session session{graph}, other_session{graph};

  static td::Tensor input_in(td::Graph& graph) {
    const td::GraphScope scope(graph);
    return td::placeholder(td::float32, {4}, "input");
  }
  static td::Tensor noisy_in(td::Graph& graph, const td::Tensor& input) {
    const td::GraphScope scope(graph);
    return td::cond(
        td::greater(td::reduce_sum(input), 0.0),
        [&] { return input + td::random::uniform({4}, 0.0, 1.0); }, [&] { return -input; });
  }
};

void use(Shared& shared, int step) {
  if (product(step) != 64 * 32) throw std::runtime_error("a product is wrong");
  const std::int64_t rows = 1 + step % 7;
  const float scaled = shared.scaled(td::ones({rows, 16})).item<float>();
  if (scaled != static_cast<float>(16 * rows * rows))
    throw std::runtime_error("a function is wrong");
  shared.noisy(td::ones({4}));
  shared.session.run({{shared.input, td::ones({4})}}, shared.noised);
  if (!gradient_is_right(shared.weights)) throw std::runtime_error("a gradient is wrong");
  if (shared.model.predict(td::ones({5, 3})).dim(0) != 5)
    throw std::runtime_error("a prediction is wrong");
  if (sum_of_pipeline() != 240) throw std::runtime_error("a pipeline is wrong");
  static_cast<void>(td::random::normal({16}, 0.0, 1.0));
}

enum Outcome : int { kWorks = 0, kRefuses = 3, kWrong = 4 };

// Never returns.
void be_child(Shared& shared, int step) {
  alarm(30);  // a hang is SIGALRM
  int outcome = kWorks;
  const std::function<void()> uses[] = {
      [] { train(); },
      [&] { use(shared, step); },
      [&] { shared.noisy(td::ones({4})); },
      [&] {
        shared.other_session.run({{shared.input, td::ones({4})}}, shared.noised);
      },
      [&] {
        shared.model.predict(td::ones({5, 3}));
      },
      [] { product(1); }};
  for (const auto& each : uses) {
    try {
      each();
    } catch (const td::FailedPreconditionError& error) {
      const bool names_it = std::string(error.what()).find("forked") != std::string::npos;
      outcome = std::max<int>(outcome, names_it ? kRefuses : kWrong);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "child: %s\n", error.what());
      outcome = kWrong;
    }
  }
  _exit(outcome);
}

}  // namespace

int main() {
  const td::DeviceScope host("/cpu:0");
  Shared shared;
  shared.model.compile({.optimizer = "sgd", .loss = "mse"});
  use(shared, 0);
  std::atomic<bool> stop{false};
  std::atomic<int> failed{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i)
    threads.emplace_back([&, i] {
      for (int step = 100 * i; !stop; ++step) try {
          use(shared, step);
          if (step % 16 == 0) train();
        } catch (const std::exception& error) {
          std::fprintf(stderr, "thread: %s\n", error.what());
          ++failed;
        }
    });
  int works = 0, refuses = 0, wrong = 0;
  for (int i = 0; i < kForks; ++i) {
    const pid_t child = fork();
    if (child == 0) be_child(shared, i);
    int status = 0;
    waitpid(child, &status, 0);
    const int outcome = WIFEXITED(status) ? WEXITSTATUS(status) : kWrong;
    if (WIFSIGNALED(status)) std::fprintf(stderr, "fork %d: signal %d\n", i, WTERMSIG(status));
    (outcome == kWorks ? works : outcome == kRefuses ? refuses : wrong)++;
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  std::fprintf(stderr, "%d forks: %d work, %d are refused, %d are wrong\n", kForks, works, refuses,
               wrong);
  return wrong == 0 && failed == 0 && works > 0 ? 0 : 1;
}
