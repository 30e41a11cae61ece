// Runs a graph that came as bytes (function/serialize.h).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "function/proto/graph.pb.h"
#include "graph/graph.h"
#include "graph/program.h"
#include "graph/program_cache.h"

namespace tandem {

// Has a program per set of input sizes and devices. One run at a time.
class GraphPrograms {
 public:
  struct Options {
    std::string name;      // for messages
    bool updates = false;  // whether it writes its variables
  };

  // `graph`: that of the function; it does not change while programs are made. Throws
  // InvalidArgumentError for feeds and fetches that it does not have.
  GraphPrograms(RefPtr<GraphImpl> graph, const proto::Function& function, Options options);

  const std::string& name() const { return options_.name; }
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
  Options options_;
  std::vector<Node::Input> feeds_, fetches_;
  ProgramCache<std::unique_ptr<Program>> programs_;
  std::shared_ptr<ProgramMemory> memory_;
};

}  // namespace tandem
