// A host finds its settings unchanged after training, also if fit() ends with an error: signals,
// locale, umask, working directory, environment, rounding of floating-point numbers.
#include <fenv.h>
#include <locale.h>
#include <signal.h>
#include <sys/stat.h>
#include <tandem/tandem.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <map>
#include <stdexcept>
#include <string>

extern char** environ;  // NOLINT: POSIX

namespace td = tandem;

namespace {

void own_handler(int) {}

std::map<std::string, std::string> state() {
  std::map<std::string, std::string> now;
  for (int number = 1; number < NSIG; ++number) {
    struct sigaction action = {};
    if (sigaction(number, nullptr, &action) != 0) continue;
    now["signal " + std::to_string(number)] =
        std::to_string(reinterpret_cast<std::uintptr_t>(action.sa_handler)) + " " +
        std::to_string(action.sa_flags);
  }
  sigset_t blocked;
  pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
  for (int number = 1; number < NSIG; ++number)
    if (sigismember(&blocked, number) == 1) now["blocked signals"] += std::to_string(number) + " ";
  now["locale"] = setlocale(LC_ALL, nullptr);
  const mode_t mask = umask(0);
  umask(mask);
  now["umask"] = std::to_string(mask);
  now["working directory"] = std::filesystem::current_path();
  for (char** variable = environ; *variable; ++variable)
    now["environment"] += *variable + std::string(";");
  now["rounding"] = std::to_string(fegetround());
  now["floating-point traps"] = std::to_string(fegetexcept());
  return now;
}

void train(bool fails) {
  td::Model model =
      td::Sequential({td::layers::Conv2D(4, 3, {.activation = "relu", .input_shape = {8, 8, 1}}),
                      td::layers::Flatten(), td::layers::Dense(2)});
  model.compile({.optimizer = td::optimizers::Adam(),
                 .loss = td::losses::SparseCategoricalCrossentropy({.from_logits = true})});
  const auto fail = [&](td::Model&, std::int64_t, const td::callbacks::Logs&) {
    if (fails) throw std::runtime_error("of the host");
  };
  const td::Tensor labels = td::constant({0, 1, 0, 1, 0, 1, 0, 1});
  try {
    model.fit(td::ones({8, 8, 8, 1}), labels,
              {.epochs = 2,
               .verbose = 0,
               .callbacks = {td::callbacks::StopOnSignal(),
                             td::callbacks::LambdaCallback({.on_epoch_end = fail})}});
  } catch (const std::runtime_error& error) {
    if (!fails) throw;
  }
}

}  // namespace

int main() {
  signal(SIGPIPE, SIG_IGN);
  signal(SIGCHLD, SIG_IGN);
  signal(SIGINT, own_handler);
  signal(SIGTERM, own_handler);
  signal(SIGUSR1, own_handler);
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR2);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  setlocale(LC_ALL, "C.UTF-8");
  umask(027);
  int differences = 0;
  const auto before = state();
  for (const bool fails : {false, true}) {
    train(fails);
    for (const auto& [name, value] : state())
      if (const auto found = before.find(name); found == before.end() || found->second != value) {
        std::fprintf(stderr, "%s: %s after training, %s before\n", name.c_str(), value.c_str(),
                     found == before.end() ? "nothing" : found->second.c_str());
        ++differences;
      }
  }
  return differences != 0;
}
