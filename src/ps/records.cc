#include "ps/records.h"

#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <fstream>
#include <string>

#include "core/crc32c.h"
#include "core/file_error.h"
#include "core/status.h"
#include "rpc/frame.h"

namespace tandem::ps {
namespace {

constexpr std::array<char, 8> kMagic = {'t', 'd', 'j', 'o', 'u', 'r', 'n', '3'};

struct FileStart {
  std::array<char, 8> magic = kMagic;
  std::uint64_t generation = 0;
};

// Before each frame.
struct RecordPrefix {
  std::uint64_t bytes = 0;
  std::uint32_t checksum = 0;  // CRC-32C of the frame, continued from the generation's bits
  std::uint32_t reserved = 0;
};

}  // namespace

RecordWriter::RecordWriter(std::filesystem::path path, std::uint64_t generation)
    : path_(std::move(path)), generation_(generation) {
  descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  if (descriptor_ < 0)
    throw_file_error("[ParameterServer] cannot create '" + path_.string() + "'", errno);
  const FileStart start{.generation = generation};
  if (::write(descriptor_, &start, sizeof(start)) != static_cast<ssize_t>(sizeof(start))) {
    const int error = errno;
    ::close(descriptor_);
    throw_file_error("[ParameterServer] cannot write '" + path_.string() + "'", error);
  }
  bytes_ = sizeof(start);
}

void RecordWriter::finish() {
  if (::ftruncate(descriptor_, static_cast<off_t>(bytes_)) != 0)
    throw_file_error("[ParameterServer] cannot write '" + path_.string() + "'", errno);
}

void RecordWriter::sync() {
  if (::fsync(descriptor_) != 0)
    throw_file_error("[ParameterServer] cannot write '" + path_.string() + "'", errno);
}

RecordWriter::~RecordWriter() { ::close(descriptor_); }

void RecordWriter::append(const proto::JournalRecord& record,
                          std::vector<rpc::Attachment> attachments) {
  if (damaged_)
    fail<DataLossError>(
        "[ParameterServer] '{}' ends in a part of a record, and cannot be continued",
        path_.string());
  const rpc::Message message{.header = record.SerializeAsString(),
                             .attachments = std::move(attachments)};
  const std::string head = rpc::frame_prefix(message, 0);
  RecordPrefix prefix{.bytes = rpc::frame_bytes(message)};
  prefix.checksum = add_crc32c(static_cast<std::uint32_t>(generation_), head.data(), head.size());
  std::vector<iovec> pieces = {{&prefix, sizeof(prefix)},
                               {const_cast<char*>(head.data()), head.size()}};
  for (const rpc::Attachment& attachment : message.attachments) {
    prefix.checksum = add_crc32c(prefix.checksum, attachment.bytes.data(), attachment.bytes.size());
    pieces.push_back({const_cast<std::byte*>(attachment.bytes.data()), attachment.bytes.size()});
  }
  for (std::size_t i = 0; i < pieces.size();) {
    const int count = static_cast<int>(std::min<std::size_t>(pieces.size() - i, 64));
    const ssize_t written = ::writev(descriptor_, &pieces[i], count);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      const int error = errno;
      const auto end = static_cast<off_t>(bytes_);
      damaged_ = ::ftruncate(descriptor_, end) != 0 || ::lseek(descriptor_, end, SEEK_SET) != end;
      throw_file_error("[ParameterServer] cannot write '" + path_.string() + "'", error);
    }
    auto left = static_cast<std::size_t>(written);
    while (i < pieces.size() && left >= pieces[i].iov_len) left -= pieces[i++].iov_len;
    if (i == pieces.size()) break;
    pieces[i].iov_base = static_cast<char*>(pieces[i].iov_base) + left;
    pieces[i].iov_len -= left;
  }
  bytes_ += sizeof(prefix) + prefix.bytes;
}

Records read_records(const std::filesystem::path& path, std::uint64_t generation) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw_file_error("[ParameterServer] cannot open '" + path.string() + "'", errno);
  const std::uint64_t size = std::filesystem::file_size(path);
  FileStart start;
  Records result{.complete = false};
  if (!file.read(reinterpret_cast<char*>(&start), sizeof(start))) return result;
  if (start.magic != kMagic)
    fail<DataLossError>("[ParameterServer] '{}' is not a journal", path.string());
  if (start.generation != generation) return result;  // an old file, which was not begun again
  result.complete = true;
  std::uint64_t at = sizeof(start);
  while (at < size) {
    RecordPrefix prefix;
    result.complete = false;
    if (size - at < sizeof(prefix)) break;
    file.read(reinterpret_cast<char*>(&prefix), sizeof(prefix));
    at += sizeof(prefix);
    if (prefix.bytes > size - at) break;
    std::vector<std::byte> bytes(prefix.bytes);
    file.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    const auto seed = static_cast<std::uint32_t>(generation);
    if (add_crc32c(seed, bytes.data(), bytes.size()) != prefix.checksum) break;
    const std::span<const std::byte> piece = bytes;
    rpc::Frame frame = rpc::parse_frame({&piece, 1});
    Record& record = result.records.emplace_back();
    if (!record.header.ParseFromString(frame.message.header))
      fail<DataLossError>("[ParameterServer] '{}' has a record that is not valid", path.string());
    record.attachments = std::move(frame.message.attachments);
    at += prefix.bytes;
    result.complete = true;
  }
  return result;
}

}  // namespace tandem::ps
