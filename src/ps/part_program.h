// Runs a part of a function on a worker or a server.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "graph/program.h"
#include "ps/shards.h"

namespace tandem::ps {

// The memory of a variable, or of one that is divided into these shards.
using ResourceOf = std::function<RefPtr<Resource>(std::span<const Shard>, const TensorSpec&)>;

// Keeps a program per set of input sizes and devices, at most kMaxPrograms. One run at a time.
class PartProgram {
 public:
  static constexpr std::size_t kMaxPrograms = 16;

  // Throws DataLossError or InvalidArgumentError for a message that is not valid: it may come from
  // anyone.
  PartProgram(const proto::Part& part, const ResourceOf& resource_of);

  const std::string& name() const { return name_; }
  std::size_t num_inputs() const { return feeds_.size(); }
  // `inputs`: one per feed. `attributes`: one per node of Part::attributes; they may differ from
  // the part's in real numbers and in the number of the step. Throws InvalidArgumentError for
  // inputs and attributes that do not suit the part.
  void run(std::span<const Tensor> inputs, std::span<const proto::RunAttributes> attributes,
           std::vector<Tensor>& outputs);

 private:
  Node& node_at(std::uint32_t index) const;
  void bind_variables(const proto::Part& part, const ResourceOf& resource_of);
  void take_attributes(const proto::Part& part);
  void check_inputs(std::span<const Tensor> inputs) const;
  void set_attributes(std::span<const proto::RunAttributes> attributes);
  Program& program_for(std::span<const Tensor> inputs);

  std::string name_;
  bool updates_;
  RefPtr<GraphImpl> graph_;
  std::vector<Node::Input> feeds_, fetches_;
  std::vector<std::shared_ptr<AttrFields>> attributes_;  // of the latest run
  std::map<std::string, std::unique_ptr<Program>> programs_;
  std::shared_ptr<ProgramMemory> memory_;
};

}  // namespace tandem::ps
