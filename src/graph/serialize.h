// Graphs as bytes (graph/proto/graph.proto).
#pragma once

#include <string>
#include <string_view>

#include "graph/graph.h"
#include "graph/selection.h"

namespace tandem {

// Throws UnimplementedError for attributes that a function of this program computes for every run,
// for loops over its datasets, and for a graph of 2 GiB or more.
std::string serialize_graph(const GraphImpl& graph, const Selection& selection);
// Throws DataLossError for bytes that are truncated or corrupt, InvalidArgumentError for a graph
// that cannot be.
RefPtr<GraphImpl> deserialize_graph(std::string_view bytes);

// The same without the frame that carries the checksum.
std::string serialize_nodes(const GraphImpl& graph, const Selection& selection);
std::string serialize_nodes(const GraphImpl& graph);  // all of it
RefPtr<GraphImpl> deserialize_nodes(std::string_view bytes);

}  // namespace tandem
