// Runs a part of a function on a worker or a server.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "function/graph_programs.h"
#include "ps/shards.h"

namespace tandem::ps {

// The memory of a variable, or of one that is divided into these shards.
using ResourceOf = std::function<RefPtr<Resource>(std::span<const Shard>, const TensorType&)>;

// One run at a time.
class PartProgram {
 public:
  // Throws DataLossError or InvalidArgumentError for a message that is not valid: it may come from
  // anyone.
  PartProgram(const proto::Part& part, const ResourceOf& resource_of);

  const std::string& name() const { return programs_.name(); }
  std::size_t num_inputs() const { return programs_.feeds().size(); }
  const Node& feed(std::size_t index) const { return *programs_.feeds()[index].node; }
  // `inputs`: one per feed. `attributes`: one per node of Part::attributes; they may differ from
  // the part's in real numbers and in the number of the step. Throws InvalidArgumentError for
  // inputs and attributes that do not suit the part.
  void run(std::span<const Tensor> inputs, std::span<const proto::RunAttributes> attributes,
           std::vector<Tensor>& outputs);

  // The attributes that the node has in a run with `attributes`.
  std::shared_ptr<const void> attributes_of(const Node& node,
                                            std::span<const proto::RunAttributes> attributes);

 private:
  void bind_variables(const proto::Part& part, const ResourceOf& resource_of);
  void take_attributes(const proto::Part& part);
  void set_attributes(std::span<const proto::RunAttributes> attributes);

  RefPtr<GraphImpl> graph_;
  GraphPrograms programs_;
  std::vector<std::shared_ptr<AttrFields>> attributes_;  // of the latest run
};

}  // namespace tandem::ps
