// The part of a function that a server runs: an update of one shard of a variable.
#pragma once

#include <functional>
#include <map>
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
  };
  UpdatePart(const Of& of, proto::Update& message);

  void write();

 private:
  Node& copy(const Node& node);
  Node& source(const Node::Input& input);
  bool belongs_here(const Node& value) const;
  Node& handle(const Node& of);
  Node& placeholder(const Node::Input& input);
  bool divided(const Shape& shape) const;
  Shape here(const Shape& shape) const;

  const Of& of_;
  proto::Update& message_;
  RefPtr<GraphImpl> graph_;
  std::map<std::pair<const Node*, int>, Node*> made_;
};

}  // namespace tandem::ps
