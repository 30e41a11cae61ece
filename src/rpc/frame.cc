#include "rpc/frame.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "core/bytes.h"
#include "core/status.h"

namespace tandem::rpc {
namespace {

constexpr std::uint32_t kMagic = 0x31637274;  // "trc1"
constexpr std::size_t kFixedBytes = 4 * sizeof(std::uint32_t);

// Reads pieces as one sequence of bytes.
class PieceReader {
 public:
  explicit PieceReader(std::span<const std::span<const std::byte>> pieces) : pieces_(pieces) {
    for (const auto& piece : pieces) left_ += piece.size();
  }

  std::size_t left() const { return left_; }

  // REQUIRES: left() >= count.
  void read(void* into, std::size_t count) {
    auto* to = static_cast<std::byte*>(into);
    left_ -= count;
    while (count > 0) {
      const auto rest = pieces_.front().subspan(offset_);
      const std::size_t some = std::min(count, rest.size());
      if (some > 0) std::memcpy(to, rest.data(), some);
      to += some;
      count -= some;
      offset_ += some;
      if (offset_ == pieces_.front().size()) {
        pieces_ = pieces_.subspan(1);
        offset_ = 0;
      }
    }
  }

  template <class T>
  T number() {
    T value;
    read(&value, sizeof(value));
    return value;
  }

 private:
  std::span<const std::span<const std::byte>> pieces_;
  std::size_t offset_ = 0;  // in the first piece
  std::size_t left_ = 0;
};

Attachment read_attachment(PieceReader& reader, std::size_t size) {
  if (size == 0) return {};
  constexpr std::align_val_t kAligned{kAlignment};
  std::shared_ptr<std::byte> block(static_cast<std::byte*>(::operator new(size, kAligned)),
                                   [](std::byte* bytes) { ::operator delete(bytes, kAligned); });
  reader.read(block.get(), size);
  const std::span<const std::byte> bytes(block.get(), size);
  return {std::move(block), bytes};
}

void require(bool condition, const char* wrong) {
  if (!condition) fail<DataLossError>("[rpc] a received message is damaged: {}", wrong);
}

}  // namespace

std::string frame_prefix(const Message& message, std::uint32_t outcome) {
  std::string bytes;
  bytes.reserve(kFixedBytes + message.attachments.size() * sizeof(std::uint64_t) +
                message.header.size());
  ByteWriter out(bytes);
  out.add(kMagic, outcome, static_cast<std::uint32_t>(message.header.size()),
          static_cast<std::uint32_t>(message.attachments.size()));
  for (const auto& each : message.attachments) out.add(std::uint64_t{each.bytes.size()});
  return bytes += message.header;
}

std::size_t frame_bytes(const Message& message) {
  std::size_t bytes = kFixedBytes + message.header.size();
  for (const auto& each : message.attachments) bytes += sizeof(std::uint64_t) + each.bytes.size();
  return bytes;
}

Frame parse_frame(std::span<const std::span<const std::byte>> pieces) {
  PieceReader reader(pieces);
  require(reader.left() >= kFixedBytes, "it ends within its first fields");
  require(reader.number<std::uint32_t>() == kMagic, "it does not start as a message of Tandem");
  Frame frame{.outcome = reader.number<std::uint32_t>(), .message = {}};
  const std::size_t header = reader.number<std::uint32_t>();
  const std::size_t count = reader.number<std::uint32_t>();
  require(reader.left() / sizeof(std::uint64_t) >= count, "it ends within the sizes");
  std::vector<std::uint64_t> sizes(count);
  for (auto& size : sizes) size = reader.number<std::uint64_t>();
  std::size_t rest = reader.left();
  require(header <= rest, "the header has fewer bytes than announced");
  rest -= header;
  for (const std::uint64_t size : sizes) {
    require(size <= rest, "the attachments have fewer bytes than announced");
    rest -= size;
  }
  require(rest == 0, "bytes follow its end");
  frame.message.header.resize(header);
  reader.read(frame.message.header.data(), header);
  frame.message.attachments.reserve(count);
  for (const std::uint64_t size : sizes)
    frame.message.attachments.push_back(read_attachment(reader, size));
  return frame;
}

}  // namespace tandem::rpc
