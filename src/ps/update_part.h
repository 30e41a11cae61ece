// The part of a function that a server runs: an update of one shard of a variable.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <utility>

#include "graph/graph.h"
#include "ps/shards.h"

namespace tandem::ps {

// Whether the coordinator computes the node's attributes for each run.
bool has_run_attributes(const Node& node);

class UpdatePart {
 public:
  struct Of {
    const std::string& function;  // for messages
    const Node& node;             // writes the variable
    std::int64_t rows;            // of the variable
    Shard shard;                  // of it
    // The shard of another variable that the node writes.
    std::function<VariableId(const Node& handle)> id_of;
    // Adds a fetch to the worker's part, and returns its index.
    std::function<std::uint32_t(const Node::Input&)> fetch;
    // The index of a row gradient of the function; none if the tensor is not one.
    std::function<std::optional<std::uint32_t>(const Node::Input&)> row_gradient;
  };
  UpdatePart(const Of& of, proto::Update& message);

  void write();

 private:
  Node& copy(const Node& node);
  Node& source(const Node::Input& input);
  bool belongs_here(const Node& value);
  Node& handle(const Node& of);
  Node& placeholder(const Node::Input& input);
  bool has_rows(const Shape& shape) const;
  bool divided(const Shape& shape) const;
  Shape here(const Shape& shape) const;

  const Of& of_;
  proto::Update& message_;
  RefPtr<GraphImpl> graph_;
  std::map<std::pair<const Node*, int>, Node*> made_;
  // Whether a node is an element-wise function of the variable that is written. Without it a chain
  // of N operations that use their input twice takes 2^N steps.
  std::map<const Node*, bool> looked_;
};

}  // namespace tandem::ps
