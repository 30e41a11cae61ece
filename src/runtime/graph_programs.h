// Runs a graph that came as bytes (runtime/serialize.h).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "graph/program.h"
#include "graph/program_cache.h"

namespace tandem {

// Has a program per set of input sizes and devices. One run at a time.
class GraphPrograms {
 public:
  struct Output {
    std::uint32_t node = 0;
    std::uint32_t output = 0;
  };
  struct Options {
    std::string name;                  // for messages
    std::vector<std::uint32_t> feeds;  // placeholders, by their index in the graph
    std::vector<Output> fetches;
    bool updates = false;             // whether it writes its variables
    ResultMemory result_memory = {};  // see ProgramOptions
  };

  // Throws InvalidArgumentError for feeds and fetches that the graph does not have. `graph` does
  // not change while programs are made; several objects may share it.
  GraphPrograms(RefPtr<GraphImpl> graph, const Options& options);

  const std::string& name() const { return name_; }
  const std::vector<Node::Input>& feeds() const { return feeds_; }
  const std::vector<Node::Input>& fetches() const { return fetches_; }
  // The node at this index. Throws InvalidArgumentError if there is none.
  Node& node_at(std::uint32_t index) const;

  // `inputs`: one per feed. Throws InvalidArgumentError for inputs that do not suit the feeds.
  void run(std::span<const Tensor> inputs, std::vector<Tensor>& outputs);

 private:
  void check(std::span<const Tensor> inputs) const;
  Program& program_for(std::span<const Tensor> inputs);

  RefPtr<GraphImpl> graph_;
  std::string name_;
  bool updates_;
  ResultMemory result_memory_;
  std::vector<Node::Input> feeds_, fetches_;
  ProgramCache<std::unique_ptr<Program>> programs_;
  std::shared_ptr<ProgramMemory> memory_;
};

}  // namespace tandem
