// The throughput of matrix products, memory and a chain of element-wise operations on the first GPU
// or the CPU. Prints a JSON line.
//   --size N (8192)  products of N x N matrices     --elements N (2^29)  size of memory passes
#include <tandem/tandem.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "random_numbers.h"
#include "report.h"

namespace {

namespace td = tandem;

// Milliseconds per operation, of operations that are launched back to back.
template <class Operation>
double time_operation(double seconds, const Operation& operation) {
  const auto repeat = [&](int count) {
    td::Tensor result;
    for (int i = 0; i < count; ++i) result = operation();
    td::cast(result[0][0], td::float32).item<float>();
  };
  repeat(4);
  return bench::time_for(seconds, 4, repeat);
}

}  // namespace

int main(int argc, char** argv) {
  std::int64_t size = 8192, elements = std::int64_t{1} << 29;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::string(argv[i]) == "--size") size = std::atol(argv[i + 1]);
    if (std::string(argv[i]) == "--elements") elements = std::atol(argv[i + 1]);
  }
  const bench::BenchOptions options = bench::parse(argc, argv);
  setenv("TANDEM_ALLOW_TF32", options.dtype == "tf32" ? "true" : "false", 1);
  if (options.device != "gpu") td::config::set_visible_devices({}, "GPU");
  const td::DType dtype = options.dtype == "bfloat16" ? td::bfloat16 : td::float32;
  const auto random_matrix = [&](std::uint32_t stream, std::int64_t rows, std::int64_t columns) {
    return td::cast(bench::random_uniform(stream, {rows, columns}, 2.0), dtype);
  };

  double product = 0, pass = 0, chain = 0;
  {
    const td::Tensor a = random_matrix(1, size, size), b = random_matrix(2, size, size);
    product = time_operation(options.seconds, [&] { return td::matmul(a, b); });
  }
  {
    const td::Tensor x = td::broadcast_to(random_matrix(3, 1, 1 << 20), {elements >> 20, 1 << 20});
    pass = time_operation(options.seconds, [&] { return td::nn::relu(x); });
    // A traced function fuses it into one pass.
    const auto chained = td::function(
        [](const td::Tensor& value) { return td::nn::gelu(value * 0.5 + 1.0) * value; });
    chain = time_operation(options.seconds, [&] { return chained(x); });
  }
  const double flops =
      2.0 * static_cast<double>(size) * static_cast<double>(size) * static_cast<double>(size);
  const double bytes = 2.0 * static_cast<double>(elements) * static_cast<double>(size_of(dtype));
  std::printf(
      "{\"program\": \"tandem\", \"dtype\": \"%s\", \"flops\": %.6g, \"bytes\": %.6g, "
      "\"chain_bytes\": %.6g}\n",
      options.dtype.c_str(), flops / product * 1e3, bytes / pass * 1e3, bytes / chain * 1e3);
}
