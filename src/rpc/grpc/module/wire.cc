#include "rpc/grpc/module/wire.h"

#include <memory>
#include <utility>
#include <vector>

#include "core/status.h"

namespace tandem::rpc::grpc_module {
namespace {

grpc::Slice slice_of(Attachment attachment) {
  // gRPC does not write to the bytes of a message that it sends.
  auto* bytes = const_cast<std::byte*>(attachment.bytes.data());
  const std::size_t size = attachment.bytes.size();
  auto owner = std::make_unique<std::shared_ptr<const void>>(std::move(attachment.owner));
  return grpc::Slice(
      bytes, size, [](void* owned) { delete static_cast<std::shared_ptr<const void>*>(owned); },
      owner.release());
}

}  // namespace

grpc::ByteBuffer to_buffer(Frame frame) {
  std::vector<grpc::Slice> slices;
  slices.reserve(1 + frame.message.attachments.size());
  slices.emplace_back(frame_prefix(frame.message, frame.outcome));
  for (Attachment& each : frame.message.attachments)
    if (!each.bytes.empty()) slices.push_back(slice_of(std::move(each)));
  return grpc::ByteBuffer(slices.data(), slices.size());
}

Frame from_buffer(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  if (!buffer.Dump(&slices).ok()) fail<DataLossError>("[rpc] a received message is unreadable");
  std::vector<std::span<const std::byte>> pieces;
  pieces.reserve(slices.size());
  for (const grpc::Slice& slice : slices)
    pieces.emplace_back(reinterpret_cast<const std::byte*>(slice.begin()), slice.size());
  return parse_frame(pieces);
}

}  // namespace tandem::rpc::grpc_module
