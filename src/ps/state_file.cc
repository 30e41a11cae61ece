#include "ps/state_file.h"

#include <array>
#include <cerrno>
#include <cstddef>
#include <memory>
#include <new>
#include <string>

#include "core/crc32c.h"
#include "core/file_error.h"
#include "core/status.h"

namespace tandem::ps {
namespace {

constexpr std::array<char, 8> kMagic = {'t', 'd', 's', 't', 'a', 't', 'e', '1'};

// Before each record: a header, and the bytes of its attachments.
struct RecordPrefix {
  std::uint64_t header_bytes = 0;
  std::uint64_t attachment_bytes = 0;
  std::uint32_t checksum = 0;  // CRC-32C of the record, continued from that of the fields above
  std::uint32_t reserved = 0;

  std::uint32_t start() const { return add_crc32c(0, this, offsetof(RecordPrefix, checksum)); }
};

// Memory as that of a received attachment.
std::shared_ptr<std::byte> block_of(std::size_t bytes) {
  constexpr std::align_val_t kAligned{rpc::kAlignment};
  return {static_cast<std::byte*>(operator new(bytes, kAligned)),
          [](std::byte* block) { operator delete(block, kAligned); }};
}

}  // namespace

StateWriter::StateWriter(const std::filesystem::path& path) : file_(path, "ParameterServer") {
  file_.write(kMagic.data(), kMagic.size());
}

void StateWriter::append(StateRecord record) {
  RecordPrefix prefix;
  for (const rpc::Attachment& attachment : record.attachments) {
    record.header.add_attachment_bytes(attachment.bytes.size());
    prefix.attachment_bytes += attachment.bytes.size();
  }
  const std::string header = record.header.SerializeAsString();
  prefix.header_bytes = header.size();
  prefix.checksum = add_crc32c(prefix.start(), header.data(), header.size());
  for (const rpc::Attachment& attachment : record.attachments)
    prefix.checksum = add_crc32c(prefix.checksum, attachment.bytes.data(), attachment.bytes.size());
  file_.write(&prefix, sizeof(prefix));
  file_.write(header.data(), header.size());
  for (const rpc::Attachment& attachment : record.attachments)
    file_.write(attachment.bytes.data(), attachment.bytes.size());
  ++records_;
}

void StateWriter::commit() {
  StateRecord end;
  end.header.set_end(records_);
  append(std::move(end));
  file_.commit();
}

StateReader::StateReader(std::filesystem::path path)
    : path_(std::move(path)), file_(path_, std::ios::binary) {
  std::error_code error;
  left_ = std::filesystem::file_size(path_, error);
  if (!file_ || error)
    throw_file_error("[ParameterServer] cannot read '" + path_.string() + "'",
                     error ? error.value() : errno);
  std::array<char, 8> magic{};
  read(magic.data(), magic.size());
  if (magic != kMagic) fail_damaged();
}

void StateReader::fail_damaged() const {
  fail<DataLossError>("[ParameterServer] '{}' is damaged", path_.string());
}

void StateReader::read(void* bytes, std::uint64_t count) {
  if (count > left_ || !file_.read(static_cast<char*>(bytes), static_cast<std::streamsize>(count)))
    fail_damaged();
  left_ -= count;
}

std::optional<StateRecord> StateReader::next() {
  RecordPrefix prefix;
  read(&prefix, sizeof(prefix));
  if (prefix.reserved != 0 || prefix.header_bytes > left_ ||
      prefix.attachment_bytes > left_ - prefix.header_bytes)
    fail_damaged();
  std::string header(prefix.header_bytes, '\0');
  read(header.data(), header.size());
  std::uint32_t checksum = add_crc32c(prefix.start(), header.data(), header.size());
  StateRecord record;
  if (!record.header.ParseFromString(header)) fail_damaged();
  std::uint64_t rest = prefix.attachment_bytes;
  for (const std::uint64_t size : record.header.attachment_bytes()) {
    if (size > rest) fail_damaged();
    rest -= size;
    const std::shared_ptr<std::byte> block = block_of(size);
    read(block.get(), size);
    checksum = add_crc32c(checksum, block.get(), size);
    record.attachments.push_back({.owner = block, .bytes = {block.get(), size}});
  }
  if (rest != 0 || checksum != prefix.checksum) fail_damaged();
  if (record.header.record_case() != proto::StateRecord::kEnd) {
    ++records_;
    return record;
  }
  if (record.header.end() != records_ || left_ != 0) fail_damaged();
  return std::nullopt;
}

}  // namespace tandem::ps
