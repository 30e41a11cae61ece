// Graphs that came as bytes, at many sizes.
#include "function/graph_programs.h"

#include <gtest/gtest.h>

#include "graph/structural_ops.h"
#include "runtime/dispatch.h"
#include "tandem/tandem.h"

namespace tandem::graph_programs_test {
namespace {

int lowered = 0;  // how often the operation's shape rule has run

const OpDef kCounted = {.name = "Counted",
                        .infer =
                            [](InferContext& c) {
                              ++lowered;
                              c.add_output(float32, c.shape(0));
                            },
                        .cpu_kernel = [](KernelContext&) {},
                        .gpu = false};

// Sizes that come and go do not drive out a program that every second call uses, whatever its key.
TEST(GraphPrograms, DoNotCompileASizeInConstantUseAgain) {
  for (const std::int64_t hot : {1, 255}) {
    const auto graph = make_ref<GraphImpl>();
    proto::Function function;
    {
      const Scoped building(context.graph, graph.get());
      Node& input = graph->add(kPlaceholder, SpecAttrs{float32, Shape({-1})}, {}, {.name = "x"});
      const Tensor x = graph->tensor(input), y = tandem::run(kCounted, {&x});
      function.add_feeds(static_cast<std::uint32_t>(input.id));
      function.add_fetches()->set_node(static_cast<std::uint32_t>(symbol_of(y).node->id));
    }
    GraphPrograms programs(graph, function, {.name = "f"});
    std::vector<Tensor> outputs;
    const auto run = [&](std::int64_t size) {
      const int before = lowered;
      const Tensor value = zeros({size}).cpu();
      programs.run({&value, 1}, outputs);
      return lowered > before;
    };
    EXPECT_TRUE(run(hot));
    for (std::int64_t size = 2; size < 202; ++size) {
      EXPECT_TRUE(run(size)) << "a new size";
      EXPECT_FALSE(run(hot)) << "after " << size;
    }
  }
}

}  // namespace
}  // namespace tandem::graph_programs_test
