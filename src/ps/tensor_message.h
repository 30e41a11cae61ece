// Tensors as attachments of messages.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "ps/proto/server_calls.pb.h"
#include "rpc/message.h"
#include "tensor/tensor_impl.h"

namespace tandem::ps {

// Adds the elements of the tensor to the message and returns its spec. Elements on the CPU are not
// copied, and must not change until the call has ended.
tandem::proto::TensorSpec attach(const Tensor& tensor, rpc::Message& message);

// The tensors of a message that was received, in the order in which they were attached. They share
// its memory.
class AttachedTensors {
 public:
  // `what`: the call, for errors.
  AttachedTensors(std::span<const rpc::Attachment> attachments, std::string what)
      : attachments_(attachments), what_(std::move(what)) {}
  // Throws DataLossError if the next attachment does not have the size of this spec.
  Tensor next(const tandem::proto::TensorSpec& spec);
  // Throws DataLossError if attachments are left.
  void end() const;

 private:
  std::span<const rpc::Attachment> attachments_;
  std::size_t taken_ = 0;
  std::string what_;
};

// Parses the header of a message. Throws DataLossError.
template <class Header>
Header parse(const rpc::Message& message, const std::string& what);
// The header as a message without attachments.
template <class Header>
rpc::Message message_of(const Header& header) {
  return {.header = header.SerializeAsString()};
}

[[noreturn]] void fail_parsing(const std::string& what, std::size_t bytes);

template <class Header>
Header parse(const rpc::Message& message, const std::string& what) {
  Header header;
  if (!header.ParseFromString(message.header)) fail_parsing(what, message.header.size());
  return header;
}

}  // namespace tandem::ps
