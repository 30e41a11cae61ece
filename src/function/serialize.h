// Graphs and functions as bytes and messages (function/proto/graph.proto).
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "function/proto/graph.pb.h"
#include "graph/graph.h"
#include "graph/selection.h"
#include "op/attributes.h"

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

// The function of these feeds and fetches, which are among the selected nodes.
proto::Function serialize_function(const GraphImpl& graph, const Selection& selection,
                                   std::span<const Node::Input> feeds,
                                   std::span<const Node::Input> fetches);

void write_spec(const TensorType& spec, proto::TensorSpec& to);

using AttributeMessages = google::protobuf::RepeatedPtrField<proto::Attribute>;
void write_attributes(const AttrFields& fields, AttributeMessages& to);
AttrFields read_attributes(const AttributeMessages& from);

}  // namespace tandem
