// Graphs as bytes (graph/proto/graph.proto).
#pragma once

#include <string>
#include <string_view>

#include "graph/graph.h"

namespace tandem {

// Throws UnimplementedError for attributes that a function of this program computes for every run,
// and for loops over its datasets.
std::string serialize_graph(const GraphImpl& graph);
// Throws DataLossError for bytes that are truncated or corrupt, InvalidArgumentError for a graph
// that cannot be.
RefPtr<GraphImpl> deserialize_graph(std::string_view bytes);

// The same without the frame that carries the checksum.
std::string serialize_nodes(const GraphImpl& graph);
RefPtr<GraphImpl> deserialize_nodes(std::string_view bytes);

}  // namespace tandem
