// Functions of maps and filters as graphs.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "core/mutex.h"
#include "data/node.h"
#include "data/proto/dataset.pb.h"
#include "function/graph_programs.h"

namespace tandem::data {

// Traces a function for elements of this spec, as td::function does. `stage`: for messages.
// `may_be_random`: whether the stage has a random generator for each element. Throws
// UnimplementedError, which says why, for a function that cannot be a graph, such as one that reads
// elements in C++, variables or iterators.
tandem::proto::Function trace_function(std::string_view stage, const MapFn& function,
                                       const std::vector<ComponentSpec>& spec, bool may_be_random);

// The function of a graph. Thread-safe: calls run at the same time.
class GraphFunction {
 public:
  // Throws DataLossError or InvalidArgumentError for a message that is not valid: it may come from
  // anyone.
  GraphFunction(tandem::proto::Function message, std::string stage);

  // Throws InvalidArgumentError for an element that the graph is not for.
  Example operator()(const Example& element) const;
  // The results' spec; none if a rank is not known.
  const Spec& spec() const { return spec_; }
  const tandem::proto::Function& message() const { return message_; }

 private:
  std::unique_ptr<GraphPrograms> make_programs() const;

  tandem::proto::Function message_;
  std::string stage_;
  Spec spec_;
  mutable std::mutex mutex_;  // guards the following
  const HeldAtFork held_at_fork_{mutex_};
  mutable std::vector<std::unique_ptr<GraphPrograms>> idle_;  // with a graph each, which has state
};

}  // namespace tandem::data
