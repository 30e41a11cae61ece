// Where the host may not have more threads, an operation throws an error that names the limit. The
// OpenMP library would end the process.
#include <sys/resource.h>
#include <tandem/tandem.h>
#include <unistd.h>

#include <cstdio>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace td = tandem;

namespace {

bool refuses(const char* what, const std::function<void()>& use) {
  try {
    use();
    std::fprintf(stderr, "%s: expected an error\n", what);
  } catch (const td::ResourceExhaustedError& error) {
    std::fprintf(stderr, "%s: %s\n", what, error.what());
    return std::string(error.what()).find("ulimit -u: 1)") != std::string::npos;
  }
  return false;
}

}  // namespace

int main() {
  // Each thread asks for its team once.
  std::vector<td::Tensor> made;
  std::thread([&] { made = {td::range(8), td::ones({64, 64})}; }).join();
  const auto data = td::data::Dataset::from_tensor_slices({made[0]});
  // The limit does not hold for root.
  if (geteuid() == 0 && setresuid(65534, 65534, 65534) != 0) return 1;
  const rlimit none{1, 1};
  if (setrlimit(RLIMIT_NPROC, &none) != 0) return 1;
  const bool good =
      refuses("prefetch", [&] { data.prefetch(1).iterate().next(); }) &&
      refuses("map",
              [&] {
                data.map([](const td::data::Example& e) { return e; }, {.num_parallel_calls = 2})
                    .iterate()
                    .next();
              }) &&
      (sysconf(_SC_NPROCESSORS_ONLN) < 2 ||
       refuses("product", [&] { td::matmul(made[1], made[1]).to_vector<float>(); }));
  return good ? 0 : 1;
}
