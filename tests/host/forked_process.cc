// A host that forks after it has used Tandem: the child computes with one thread, and gets an error
// from what had threads in the parent. Neither hangs.
#include <sys/wait.h>
#include <tandem/tandem.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

namespace td = tandem;

namespace {

int failures = 0;

// Whether `child` returns true in a forked process, which has 30 seconds. `ends` ends the child.
void check(const char* name, const std::function<bool()>& child, void (*ends)(int) = _exit) {
  const pid_t process = fork();
  if (process == 0) {
    alarm(30);
    bool good = false;
    try {
      good = child();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s: %s\n", name, error.what());
    }
    ends(good ? 0 : 1);
  }
  int status = 0;
  waitpid(process, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return;
  std::fprintf(stderr, "%s: failed with status %x\n", name, static_cast<unsigned>(status));
  ++failures;
}

bool refuses(const std::function<void()>& use) {
  try {
    use();
  } catch (const td::FailedPreconditionError& error) {
    return std::string(error.what()).find("forked") != std::string::npos;
  }
  return false;
}

std::vector<float> product() {
  td::random::set_seed(1);
  const td::Tensor x = td::random::normal({512, 512});
  return td::matmul(x, x).to_vector<float>();
}

double train(int replicas) {
  td::random::set_seed(1);
  std::vector<std::string> devices{"CPU:0", "CPU:1"};
  devices.resize(static_cast<std::size_t>(replicas));
  td::distribute::MirroredStrategy strategy({.devices = devices});
  const auto scope = strategy.scope();
  td::Sequential model({td::layers::Dense(8, {.input_shape = {4}}), td::layers::Dense(1)});
  model.compile({.optimizer = "adam", .loss = "mse"});
  const auto data =
      td::data::Dataset::from_tensor_slices({td::ones({64, 4}), td::ones({64, 1})})
          .map([](const td::data::Example& e) { return e; }, {.num_parallel_calls = 2})
          .batch(8)
          .prefetch(2);
  return model.fit(data, {.epochs = 2, .verbose = 0}).history.at("loss").back();
}

}  // namespace

int main() {
  td::config::set_logical_cpus(2);
  td::config::set_emulated_gpus(1);
  const td::DeviceScope host("/cpu:0");
  const std::vector<float> expected = product();
  const double loss = train(2);
  auto prefetched =
      td::data::Dataset::from_tensor_slices({td::range(8)}).batch(2).prefetch(1).iterate();
  auto mapped = td::data::Dataset::from_tensor_slices({td::range(8)})
                    .map([](const td::data::Example& e) { return e; }, {.num_parallel_calls = 2})
                    .iterate();
  prefetched.next();
  mapped.next();
  td::Tensor on_gpu;
  {
    const td::DeviceScope gpu("/gpu:0");
    on_gpu = td::ones({4, 4}) * 2.0;
  }
  td::distribute::MirroredStrategy strategy({.devices = {"CPU:0", "CPU:1"}});
  const auto step = [&] { return strategy.run([] { return td::ones({2}) * 2.0; }); };
  step();
  const std::string store = "/tmp/tandem_forked_process." + std::to_string(getpid());
  td::comm::init_process_group(
      {.backend = "shm", .init_method = "file://" + store, .world_size = 1, .rank = 0});
  td::Tensor reduced = td::ones({3});
  reduced = td::comm::all_reduce(reduced);

  td::hvd::init();
  const td::Tensor summed = td::hvd::allreduce(td::ones({2}), {.op = td::hvd::kSum});

  check("products", [&] { return product() == expected; });
  check("training", [&] { return train(2) == loss; });
  check("training with one replica", [] { return train(1) < 10; });
  check(
      "exit()", [&] { return product() == expected; }, std::exit);
  check(
      "prefetch", [&] { return refuses([&] { prefetched.next(); }); }, std::exit);
  check(
      "map", [&] { return refuses([&] { mapped.next(); }); }, std::exit);
  const auto on_gpu_again = [&] {
    const td::DeviceScope gpu("/gpu:0");
    return (on_gpu * 2.0).to_vector<float>()[0];
  };
  check(
      "emulated GPU", [&] { return refuses(on_gpu_again); }, std::exit);
  check("value on an emulated GPU", [&] { return on_gpu.to_vector<float>()[0] == 2; });
  check(
      "strategy", [&] { return refuses([&] { step(); }); }, std::exit);
  check(
      "process group", [&] { return refuses([&] { reduced = td::comm::all_reduce(reduced); }); },
      std::exit);

  check(
      "hvd", [&] { return refuses([] { static_cast<void>(td::hvd::allreduce(td::ones({2}))); }); },
      std::exit);
  check(
      "hvd, shut down",
      [&] {
        td::hvd::shutdown();
        return summed.to_vector<float>()[0] == 1;
      },
      std::exit);

  // The parent goes on.
  if (product() != expected || train(2) != loss) ++failures;
  prefetched.next();
  mapped.next();
  step();
  reduced = td::comm::all_reduce(reduced);
  if (td::hvd::allreduce(td::ones({2})).to_vector<float>()[0] != 1) ++failures;
  td::hvd::shutdown();
  if (on_gpu_again() != 4) ++failures;
  td::comm::destroy_process_group();
  std::remove(store.c_str());
  return failures == 0 ? 0 : 1;
}
