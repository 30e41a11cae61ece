// A host whose memory is limited gets an error that names the limit: `ulimit -v` or `ulimit -d`.
#include <sys/resource.h>
#include <tandem/tandem.h>

#include <cstdio>
#include <string>
#include <vector>

int main(int, char** argv) {
  const std::string option = argv[1];
  const rlimit limit = {.rlim_cur = rlim_t{1} << 30, .rlim_max = RLIM_INFINITY};
  if (setrlimit(option == "-v" ? RLIMIT_AS : RLIMIT_DATA, &limit) != 0) return 1;
  std::vector<tandem::Tensor> kept;
  try {
    for (int i = 0; i < 32; ++i) kept.push_back(tandem::ones({16, 1024, 1024}));
  } catch (const tandem::ResourceExhaustedError& error) {
    const std::string text = error.what();
    kept.clear();
    const bool works = tandem::ones({2}).sum().item() == 2.0;
    std::puts(text.c_str());
    return works &&
                   text.find("of the process 1024.0 MiB (ulimit " + option + ")") !=
                       std::string::npos &&
                   text.find("Try a higher limit of the process") != std::string::npos
               ? 0
               : 2;
  }
  return 3;
}
