// A host uses Tandem while its process ends: `late_use` trains in destructors of static objects, in
// handlers of atexit() and when the libraries are being finalized, `threads` ends while threads
// train, `static_objects` checks that Tandem makes no object that exit() destroys before those of
// the host.
#include <dlfcn.h>
#include <tandem/tandem.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <thread>

namespace td = tandem;

namespace {

std::atomic<const char*> made_late = nullptr;
std::atomic<bool> loaded = false;

}  // namespace

// In front of the C library's, which all static objects with destructors call.
extern "C" int __cxa_atexit(void (*destroy)(void*), void* object, void* library) {  // NOLINT
  using Function = int(void (*)(void*), void*, void*);
  static auto* const real = reinterpret_cast<Function*>(dlsym(RTLD_NEXT, "__cxa_atexit"));
  Dl_info info;
  // Tandem's handlers have no object.
  if (loaded && library && dladdr(library, &info) != 0 &&
      ((object && std::strstr(info.dli_fname, "libtandem")) ||
       std::strstr(info.dli_fname, "libdnnl")))
    made_late = info.dli_fname;
  return real(destroy, object, library);
}

namespace {

[[noreturn]] void fail(const char* where, const char* why) {
  std::fprintf(stderr, "%s: %s\n", where, why);
  std::_Exit(1);
}

td::Sequential image_model() {
  td::Sequential model({td::layers::Conv2D(8, 3, {.activation = "relu", .input_shape = {8, 8, 2}}),
                        td::layers::Flatten(), td::layers::Dense(4)});
  model.compile({.optimizer = "adam", .loss = "mse"});
  return model;
}

void train() {
  td::Sequential model = image_model();
  model.fit(td::ones({16, 8, 8, 2}), td::ones({16, 4}), {.epochs = 2, .verbose = 0});
}

td::Tensor attend() {
  const td::Tensor heads = td::ones({2, 4, 16, 16});
  return td::nn::scaled_dot_product_attention(heads, heads, heads);
}

// Operations of each kind, eagerly.
void compute() {
  for (const td::DType dtype : {td::float32, td::bfloat16, td::float16, td::float64}) {
    td::Variable x(td::cast(td::random::normal({2, 8, 8, 16}), dtype));
    const td::Tensor kernel = td::ones({3, 3, 16, 16}, {.dtype = dtype});
    td::GradientTape tape;
    const td::Tensor y = td::nn::conv2d(x, kernel, {}, {.padding = td::nn::Padding::kSame});
    const td::Tensor heads = td::reshape(y, {2, 4, 16, 16});
    const td::Tensor attended = td::nn::scaled_dot_product_attention(heads, heads, heads);
    const td::Tensor product =
        td::matmul(td::reshape(attended, {-1, 16}), td::ones({16, 8}, {.dtype = dtype}));
    const td::Tensor loss = td::reduce_mean(td::nn::softmax(td::nn::gelu(product)));
    tape.gradient(loss, x).to(td::float32).to_vector<float>();
  }
  for (const std::int64_t rows : {std::int64_t{4}, std::int64_t{2048}})
    td::matmul(td::ones({rows, 64}), td::ones({rows, 64}), {.transpose_a = true})
        .to_vector<float>();
}

void use(const char* where) {
  try {
    compute();
    train();
  } catch (const std::exception& error) {
    fail(where, error.what());
  }
  std::fprintf(stderr, "%s: trained\n", where);
}

struct AtEnd {
  std::function<void()> run;
  ~AtEnd() {
    if (run) run();
  }
};
AtEnd at_end;  // made before the first operation
bool when_finalized = false;

__attribute__((destructor)) void finalize() {
  if (when_finalized) use("finalization");
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  if (what == "late_use") {
    at_end.run = [] { use("static object"); };
    std::atexit([] { use("handler before the first use"); });
    use("main");
    std::atexit([] { use("handler after it"); });
  } else if (what == "first_use_is_late") {
    at_end.run = [] { use("static object"); };
  } else if (what == "threads" || what == "exit_on_thread") {
    td::config::set_logical_cpus(2);
    static std::atomic<int> working = 0;
    for (void (*work)() :
         {+[] { compute(); }, +[] { train(); }, +[] { compute(); },
          +[] {
            td::distribute::MirroredStrategy strategy({.devices = {"CPU:0", "CPU:1"}});
            const auto scope = strategy.scope();
            train();
          }})
      std::thread([work] {
        work();
        for (++working;;) work();
      }).detach();
    while (working < 4) std::this_thread::yield();
    if (what == "exit_on_thread") {
      std::thread([] { std::exit(0); }).detach();
      for (;;) compute();
    }
  } else if (what == "when_finalized") {
    when_finalized = true;
    use("main");
  } else if (what == "static_objects") {
    attend();  // makes some in oneDNN, and does without them at the end
    loaded = true;
    use("main");
    {
      td::distribute::MirroredStrategy strategy({.devices = {"CPU:0"}});
      const auto scope = strategy.scope();
      train();
    }
    const auto doubled = td::function([](const td::Tensor& x) { return td::matmul(x, x) * 2.0; });
    doubled(td::ones({3, 3}));
    if (made_late) fail("a static object with a destructor is made after loading by", made_late);
  } else {
    fail("unknown case", what.c_str());
  }
  return 0;
}
