// The bound: the bare oneDNN primitives of a case's forward and backward pass, one after the
// other, with no framework and no optimizer around them. Activations are plain (channels last);
// weights are in the packed layout that each primitive prefers; packing is not timed. With --dtype
// bfloat16 activations, weights and products are bfloat16, and the gradients of weights float32.
#include <omp.h>

#include <stdexcept>

#include "bound_transformer.h"
#include "report.h"

namespace {

using namespace bench;  // NOLINT: the program is the benchmark

void mlp(TransformerLayers& net, memory::dim batch) {
  net.loss(net.dense(net.dense(net.dense(net.input({batch, 784}), 512, true), 512, true), 10, false,
                     true));
}

void lenet(TransformerLayers& net, memory::dim batch) {
  auto x = net.conv(net.input({batch, 1, 28, 28}), 32, 3, 1, 0, true);
  x = net.pool(net.conv(x, 64, 3, 1, 0, true), algorithm::pooling_max, 2);
  net.loss(net.dense(net.dense(net.flatten(x), 128, true), 10, false, true));
}

void resnet20(TransformerLayers& net, memory::dim batch) {
  auto x = net.batch_norm(net.conv(net.input({batch, 3, 32, 32}), 16, 3, 1, 1, false), true);
  for (const memory::dim filters : {16, 32, 64})
    for (int block = 0; block < 3; ++block) {
      const memory::dim stride = block == 0 && filters != 16 ? 2 : 1;
      auto y = net.batch_norm(net.conv(x, filters, 3, stride, 1, false), true);
      y = net.batch_norm(net.conv(y, filters, 3, 1, 1, false), false);
      if (stride != 1) x = net.batch_norm(net.conv(x, filters, 1, stride, 0, false), false);
      x = net.sum(y, x, true);
    }
  net.loss(net.dense(net.flatten(net.pool(x, algorithm::pooling_avg_exclude_padding, 8)), 10, false,
                     true));
}

// Bottlenecks of 64, 128, 256 and 512 filters, the stride in the 3x3 convolution.
void resnet50(TransformerLayers& net, memory::dim batch) {
  auto x = net.batch_norm(net.conv(net.input({batch, 3, 224, 224}), 64, 7, 2, 3, false), true);
  x = net.pool(x, algorithm::pooling_max, 2);
  constexpr struct {
    memory::dim filters;
    int blocks;
  } kStages[] = {{64, 3}, {128, 4}, {256, 6}, {512, 3}};
  for (const auto& [filters, blocks] : kStages)
    for (int block = 0; block < blocks; ++block) {
      const memory::dim stride = block == 0 && filters != 64 ? 2 : 1;
      auto y = net.batch_norm(net.conv(x, filters, 1, 1, 0, false), true);
      y = net.batch_norm(net.conv(y, filters, 3, stride, 1, false), true);
      y = net.batch_norm(net.conv(y, 4 * filters, 1, 1, 0, false), false);
      if (block == 0) x = net.batch_norm(net.conv(x, 4 * filters, 1, stride, 0, false), false);
      x = net.sum(y, x, true);
    }
  net.loss(net.dense(net.flatten(net.pool(x, algorithm::pooling_avg_exclude_padding, 7)), 1000,
                     false, true));
}

// The input stands for the embeddings, whose rows are not gathered.
void transformer(TransformerLayers& net, memory::dim batch) {
  constexpr memory::dim kWidth = 256, kHeads = 4, kLength = 128;
  auto x = net.input({batch * kLength, kWidth}, true);
  for (int block = 0; block < 4; ++block) {
    const auto parts = net.dense(net.layer_norm(x), 3 * kWidth, false);
    x = net.sum(net.dense(net.attention(parts, kHeads, kLength), kWidth, false), x, false);
    const auto hidden = net.gelu(net.dense(net.layer_norm(x), 4 * kWidth, false));
    x = net.sum(net.dense(hidden, kWidth, false), x, false);
  }
  net.loss(net.dense(net.layer_norm(x), 1000, false, true));
}

}  // namespace

int main(int argc, char** argv) {
  const bench::BenchOptions options = bench::parse(argc, argv);
  omp_set_num_threads(options.threads);
  TransformerLayers net(options.dtype == "bfloat16" ? Type::bf16 : Type::f32);
  if (options.name == "mlp64")
    mlp(net, 64);
  else if (options.name == "mlp512")
    mlp(net, 512);
  else if (options.name == "lenet64")
    lenet(net, 64);
  else if (options.name == "resnet20")
    resnet20(net, 128);
  else if (options.name == "resnet50")
    resnet50(net, 8);
  else if (options.name == "transformer4")
    transformer(net, 16);
  else
    throw std::invalid_argument("no case " + options.name);
  const double startup_ms = bench::since_start_ms();
  bench::measure("bound", options, {.startup_ms = startup_ms}, [&](int steps) {
    for (int i = 0; i < steps; ++i) net.step();
  });
}
