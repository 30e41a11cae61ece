// A host that traps floating-point exceptions: no operation of healthy numbers, and none that
// saturates, ends it. Afterwards the calling thread and its OpenMP team trap as before.
#include <fenv.h>
#include <omp.h>
#include <tandem/tandem.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

namespace td = tandem;

namespace {

constexpr int kTraps = FE_INVALID | FE_DIVBYZERO | FE_OVERFLOW;
std::string running;  // the case

void report(int) {
  const std::string text = "SIGFPE in " + running + "\n";
  static_cast<void>(write(2, text.data(), text.size()));
  _exit(1);
}

bool team_traps() {
  int trapping = 0, threads = 0;
#pragma omp parallel num_threads(4) reduction(+ : trapping, threads)
  {
    ++threads;
    trapping += fegetexcept() == kTraps ? 1 : 0;
  }
  return trapping == threads;
}

void functions_of(const td::Tensor& x) {
  const auto flat = td::reshape(x, {1, x.size()});
  const std::vector<std::pair<const char*, std::function<td::Tensor(const td::Tensor&)>>> functions{
      {"exp", [](const auto& v) { return td::exp(v); }},
      {"expm1", [](const auto& v) { return td::expm1(v); }},
      {"tanh", [](const auto& v) { return td::tanh(v); }},
      {"sigmoid", [](const auto& v) { return td::sigmoid(v); }},
      {"erf", [](const auto& v) { return td::erf(v); }},
      {"log", [](const auto& v) { return td::log(1.0 + td::abs(v)); }},
      {"sin", [](const auto& v) { return td::sin(v); }},
      {"pow", [](const auto& v) { return td::pow(td::abs(v) + 0.1, 1.7); }},
      {"rsqrt", [](const auto& v) { return td::rsqrt(td::abs(v) + 0.1); }},
      {"softplus", [](const auto& v) { return td::nn::softplus(v); }},
      {"gelu", [](const auto& v) { return td::nn::gelu(v); }},
      {"elu", [](const auto& v) { return td::nn::elu(v); }},
      {"swish", [](const auto& v) { return td::nn::swish(v); }},
      {"softmax",
       [](const auto& v) {
         return td::nn::softmax(td::reshape(v, {1, v.size()}));
       }},
      {"log_softmax",
       [](const auto& v) {
         return td::nn::log_softmax(td::reshape(v, {1, v.size()}));
       }},
      {"cast", [](const auto& v) { return td::cast(td::cast(v, td::bfloat16), td::float32); }},
  };
  for (const auto& [name, function] : functions)
    for (const bool traced : {false, true}) {
      running = std::string(name) + " of " +
                std::to_string(td::cast(x, td::float64).to_vector<double>()[0]);
      const td::Variable v(x);
      const auto slope = [&, f = function] {
        td::GradientTape tape;
        const td::Tensor y = td::reduce_sum(f(v.value()));
        return tape.gradient(y, v);
      };
      const auto program = td::function(slope);
      td::cast(traced ? program() : slope(), td::float64).to_vector<double>();
    }
}

void attention() {
  running = "attention";
  for (const int length : {1, 5, 33}) {
    const td::Variable q(td::random::normal({2, 1, length, 4}));
    for (const bool causal : {false, true}) {
      td::GradientTape tape;
      const td::Tensor y =
          td::reduce_sum(td::nn::scaled_dot_product_attention(q, q, q, {.causal = causal}));
      tape.gradient(y, q).to_vector<float>();
    }
  }
}

void train(bool eager) {
  running = eager ? "eager training" : "training";
  td::Sequential model({td::layers::Conv2D(9, 3, {.activation = "relu", .input_shape = {8, 8, 3}}),
                        td::layers::BatchNormalization(), td::layers::MaxPooling2D(2),
                        td::layers::Flatten(), td::layers::Dropout(0.3),
                        td::layers::Dense(7, {.activation = "gelu"}),
                        td::layers::LayerNormalization(), td::layers::Dense(4)});
  model.compile({.optimizer = "adam",
                 .loss = td::losses::SparseCategoricalCrossentropy({.from_logits = true}),
                 .metrics = {"accuracy"},
                 .run_eagerly = eager});
  const td::Tensor x = td::random::normal({33, 8, 8, 3});
  const td::Tensor y = td::random::uniform_int({33}, 0, 4, {.dtype = td::int64});
  model.fit(x, y, {.epochs = 2, .batch_size = 13, .verbose = 0});
  model.predict(x);
}

void train_replicas() {
  running = "training of replicas";
  const td::distribute::MirroredStrategy strategy({.devices = {"/cpu:0", "/cpu:1"}});
  const auto scope = strategy.scope();
  train(false);
}

}  // namespace

int main() {
  td::config::set_logical_cpus(2);
  signal(SIGFPE, report);
  feenableexcept(kTraps);
  const bool before = team_traps();
  for (const double value : {-1e4, -1000.0, -200.0, -100.0, -1.0, 0.0, 1.0, 50.0})
    for (const td::DType dtype : {td::float32, td::float64, td::float16, td::bfloat16})
      functions_of(td::full({37}, value, {.dtype = dtype}));
  attention();
  train(false);
  train(true);
  train_replicas();
  if (fegetexcept() != kTraps || !before || !team_traps()) {
    std::fprintf(stderr, "the host's traps are not what they were\n");
    return 1;
  }
  return 0;
}
