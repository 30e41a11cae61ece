// Graphs and functions as bytes and messages (function/proto/graph.proto).
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "function/proto/graph.pb.h"
#include "graph/graph.h"
#include "graph/selection.h"
#include "op/attributes.h"

namespace tandem {

// Throws UnimplementedError for attributes that a function of this program computes in every run,
// for loops over its datasets, and for a graph of 2 GiB or more.
std::string serialize_graph(const GraphImpl& graph, const Selection& selection);
// How the elements of large constants are kept.
enum class LargeConstants { kBytes, kTensors };  // tensors of the host: initialises devices
// Throws DataLossError for truncated or corrupt bytes, and InvalidArgumentError for an invalid
// graph.
RefPtr<GraphImpl> deserialize_graph(std::string_view bytes,
                                    LargeConstants large = LargeConstants::kBytes);

// The same without the frame that carries the checksum.
std::string serialize_nodes(const GraphImpl& graph, const Selection& selection);
std::string serialize_nodes(const GraphImpl& graph);  // all nodes
RefPtr<GraphImpl> deserialize_nodes(std::string_view bytes,
                                    LargeConstants large = LargeConstants::kBytes);

// A message in the format of protocol buffers without its fields of one number, whose contents
// remain where they are.
struct SplitMessage {
  std::string rest;
  std::vector<std::string_view> contents;
};
// Nothing if the message is malformed. The field holds bytes or messages.
std::optional<SplitMessage> split_message(std::string_view message, int field);

// The function of these feeds and fetches, which are among the selected nodes.
proto::Function serialize_function(const GraphImpl& graph, const Selection& selection,
                                   std::span<const Node::Input> feeds,
                                   std::span<const Node::Input> fetches);

void write_spec(const TensorType& spec, proto::TensorSpec& to);

using AttributeMessages = google::protobuf::RepeatedPtrField<proto::Attribute>;
void write_attributes(const AttrFields& fields, AttributeMessages& to);
AttrFields read_attributes(const AttributeMessages& from);

}  // namespace tandem
