// Attention in Tandem, forward and backward, timed; prints a JSON line. Cases:
// NAME-BATCHxHEADSxPOSITIONSxDEPTH, causal where NAME is "causal", with the result alone where it
// is "forward". With --device gpu, all of it is on the first GPU.
#include <tandem/tandem.h>

#include <array>
#include <cstdio>

#include "report.h"

namespace td = tandem;

int main(int argc, char** argv) {
  const bench::BenchOptions options = bench::parse(argc, argv);
  std::array<char, 16> name{};
  long batch = 0, heads = 0, positions = 0, depth = 0;
  if (std::sscanf(options.name.c_str(), "%15[a-z]-%ldx%ldx%ldx%ld", name.data(), &batch, &heads,
                  &positions, &depth) != 5) {
    std::fprintf(stderr, "attention: no case %s\n", options.name.c_str());
    return 1;
  }
  const std::string kind = name.data();
  if (options.device != "gpu") td::config::set_visible_devices({}, "GPU");
  td::config::set_intra_op_parallelism_threads(options.threads);
  (td::ones({1}) + td::ones({1})).item<float>();
  const double startup_ms = bench::since_start_ms();

  const auto make = [&] { return td::random::normal({batch, positions, heads, depth}); };
  std::array<td::Tensor, 3> in = {make(), make(), make()};
  const td::Tensor slope = make();
  if (kind != "forward")
    for (td::Tensor& each : in) each.set_requires_grad();
  bench::measure("tandem", options, {.startup_ms = startup_ms}, [&](int steps) {
    td::Tensor last;
    for (int i = 0; i < steps; ++i) {
      last =
          td::nn::scaled_dot_product_attention(in[0], in[1], in[2], {.causal = kind == "causal"});
      if (kind == "forward") continue;
      for (td::Tensor& each : in) each.zero_grad();
      last.backward(slope);
      last = in[0].grad();
    }
    td::slice_rows(td::reshape(last, {-1}), 0, 1).to_vector<float>();
  });
}
