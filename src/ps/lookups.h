// The rows that a traced function looks up in variables, and gradients that are 0 but for these.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "graph/graph.h"
#include "ps/shards.h"

namespace tandem::ps {

// A variable of which a function reads rows alone.
struct LookedUpVariable {
  const Node* handle = nullptr;
  std::vector<const Node*> lookups;  // gather(variable, indices)
};
// `needed`: the nodes of the worker's part. `fetches`: those that are read from outside. The
// variables are those that are used by look-ups alone, with indices that depend only on `feeds`.
std::vector<LookedUpVariable> find_lookups(std::span<const Node* const> needed,
                                           std::span<const Node::Input> fetches,
                                           std::span<const Node::Input> feeds);

// Finds tensors that are 0 but for rows that were looked up. Such a tensor is the gradient of a
// look-up, a sum of such tensors, or a product with a tensor that has the same values for all rows.
class RowGradients {
 public:
  // `fetch`: adds a fetch to the worker's part, and returns its index.
  explicit RowGradients(std::function<std::uint32_t(const Node::Input&)> fetch)
      : fetch_(std::move(fetch)) {}

  // The tensor's index among the messages(). None if it has other elements.
  std::optional<std::uint32_t> find(const Node::Input& tensor);
  const std::vector<proto::RowGradient>& messages() const { return messages_; }

 private:
  class Formula;

  bool has_few_rows(const Node& node);

  std::function<std::uint32_t(const Node::Input&)> fetch_;
  std::unordered_map<const Node*, bool> has_few_rows_;
  std::unordered_map<const Node*, std::uint32_t> found_;
  std::vector<proto::RowGradient> messages_;
};

}  // namespace tandem::ps
