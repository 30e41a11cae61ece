// A host whose OpenMP gives smaller teams than are asked for, by environment variables, by its own
// settings, or in its own parallel region. Products and convolutions are right all the same, and
// the host's settings stay what they were.
#include <omp.h>
#include <tandem/tandem.h>

#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace td = tandem;

namespace {

std::atomic<int> failures{0};

void expect(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "%s\n", what);
  ++failures;
}

td::Tensor numbers(const td::Shape& shape, unsigned seed) {
  std::vector<float> values(static_cast<std::size_t>(shape.num_elements()));
  for (float& value : values) {
    seed = seed * 1664525u + 1013904223u;
    value = static_cast<float>(seed >> 16) / 65536.0f - 0.5f;
  }
  return td::constant(values, {.shape = shape});
}

// The same computation in float64, whose products are Tandem's own loops.
template <class Function>
void compare(const char* what, const Function& compute) {
  const auto in32 = td::cast(compute(td::float32), td::float64).template to_vector<double>();
  const auto in64 = compute(td::float64).template to_vector<double>();
  double apart = 0.0;
  for (std::size_t i = 0; i < in64.size(); ++i)
    apart = std::fmax(apart, std::isfinite(in32[i]) ? std::fabs(in32[i] - in64[i]) : INFINITY);
  expect(apart < 1e-3, what);
}

void compute_all() {
  for (const std::int64_t rows : {1, 32, 300})
    compare("a matrix product is wrong", [&](td::DType dtype) {
      return td::matmul(td::cast(numbers({rows, 784}, 1), dtype),
                        td::cast(numbers({784, 512}, 2), dtype));
    });
  compare("the gradients of a product are wrong", [&](td::DType dtype) {
    const td::Tensor x = td::cast(numbers({32, 784}, 1), dtype),
                     w = td::cast(numbers({784, 512}, 2), dtype);
    td::GradientTape tape({.persistent = true});
    tape.watch(x);
    tape.watch(w);
    const td::Tensor y = td::reduce_sum(td::square(td::matmul(x, w))) / 1e4;
    return td::concat(
        {td::reshape(tape.gradient(y, x), {-1}), td::reshape(tape.gradient(y, w), {-1})}, 0);
  });
  compare("a convolution is wrong", [&](td::DType dtype) {
    return td::nn::conv2d(td::cast(numbers({8, 14, 14, 16}, 3), dtype),
                          td::cast(numbers({3, 3, 16, 32}, 4), dtype), {},
                          {.padding = td::nn::Padding::kSame});
  });
}

}  // namespace

int main(int argc, char**) {
  td::config::set_intra_op_parallelism_threads(2);
  const int threads = omp_get_max_threads();
  const bool dynamic = omp_get_dynamic() != 0;
  compute_all();
  expect(omp_get_max_threads() == threads, "the host's number of threads has changed");
  expect((omp_get_dynamic() != 0) == dynamic, "the host's dynamic adjustment has changed");
  if (argc > 1) return failures != 0;

  omp_set_dynamic(1);
  compute_all();
  expect(omp_get_dynamic() != 0, "the host's dynamic adjustment was turned off");
  omp_set_dynamic(0);
  for (const int levels : {1, 2}) {
    omp_set_max_active_levels(levels);
#pragma omp parallel num_threads(2)
    compute_all();
  }
  omp_set_max_active_levels(0);
  compute_all();
  return failures != 0;
}
