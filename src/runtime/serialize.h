// Graphs as bytes (runtime/proto/graph.proto).
#pragma once

#include <string>
#include <string_view>

#include "graph/graph.h"
#include "graph/selection.h"

namespace tandem {

// Throws UnimplementedError for attributes that a function of this program computes in every run,
// for loops over its datasets, and for a graph of 2 GiB or more.
std::string serialize_graph(const GraphImpl& graph, const Selection& selection);
// Throws DataLossError for truncated or corrupt bytes, and InvalidArgumentError for an invalid
// graph.
RefPtr<GraphImpl> deserialize_graph(std::string_view bytes);

// The same without the frame that carries the checksum.
std::string serialize_nodes(const GraphImpl& graph, const Selection& selection);
std::string serialize_nodes(const GraphImpl& graph);  // all nodes
RefPtr<GraphImpl> deserialize_nodes(std::string_view bytes);

}  // namespace tandem
