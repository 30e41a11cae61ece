#include "ps/journal.h"

#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <optional>
#include <string>

#include "core/file_error.h"
#include "core/log.h"
#include "core/status.h"
#include "ps/parameter_store.h"
#include "rpc/frame.h"

namespace tandem::ps {
namespace {

namespace fs = std::filesystem;

constexpr std::array<char, 8> kMagic = {'t', 'd', 'j', 'o', 'u', 'r', 'n', '1'};

// Before each frame.
struct RecordPrefix {
  std::uint64_t bytes = 0;
  std::uint32_t checksum = 0;  // of the frame
  std::uint32_t reserved = 0;
};

std::uint32_t add_checksum(std::uint32_t checksum, const void* data, std::size_t bytes) {
  return static_cast<std::uint32_t>(crc32_z(checksum, static_cast<const Bytef*>(data), bytes));
}

}  // namespace

// --- files of records ---

RecordWriter::RecordWriter(fs::path path) : path_(std::move(path)) {
  descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (descriptor_ < 0)
    throw_file_error("[ParameterServer] cannot create '" + path_.string() + "'", errno);
  if (::write(descriptor_, kMagic.data(), kMagic.size()) != static_cast<ssize_t>(kMagic.size()))
    throw_file_error("[ParameterServer] cannot write '" + path_.string() + "'", errno);
  bytes_ = kMagic.size();
}

RecordWriter::~RecordWriter() { ::close(descriptor_); }

void RecordWriter::append(const proto::JournalRecord& record,
                          std::vector<rpc::Attachment> attachments) {
  const rpc::Message message{.header = record.SerializeAsString(),
                             .attachments = std::move(attachments)};
  const std::string head = rpc::frame_prefix(message, 0);
  RecordPrefix prefix{.bytes = rpc::frame_bytes(message)};
  prefix.checksum = add_checksum(0, head.data(), head.size());
  std::vector<iovec> pieces = {{&prefix, sizeof(prefix)},
                               {const_cast<char*>(head.data()), head.size()}};
  for (const rpc::Attachment& attachment : message.attachments) {
    prefix.checksum =
        add_checksum(prefix.checksum, attachment.bytes.data(), attachment.bytes.size());
    pieces.push_back({const_cast<std::byte*>(attachment.bytes.data()), attachment.bytes.size()});
  }
  for (std::size_t i = 0; i < pieces.size();) {
    const int count = static_cast<int>(std::min<std::size_t>(pieces.size() - i, 64));
    const ssize_t written = ::writev(descriptor_, &pieces[i], count);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      const int error = errno;
      // Without the part that was written, later records can be read.
      if (::ftruncate(descriptor_, static_cast<off_t>(bytes_)) == 0)
        ::lseek(descriptor_, static_cast<off_t>(bytes_), SEEK_SET);
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

Records read_records(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw_file_error("[ParameterServer] cannot open '" + path.string() + "'", errno);
  const std::uint64_t size = fs::file_size(path);
  std::array<char, kMagic.size()> magic{};
  Records result;
  if (!file.read(magic.data(), magic.size())) {
    result.complete = false;  // created, but not written
    return result;
  }
  if (magic != kMagic)
    fail<DataLossError>("[ParameterServer] '{}' is not a journal", path.string());
  std::uint64_t at = magic.size();
  while (at < size) {
    RecordPrefix prefix;
    result.complete = false;
    if (size - at < sizeof(prefix)) break;
    file.read(reinterpret_cast<char*>(&prefix), sizeof(prefix));
    at += sizeof(prefix);
    if (prefix.bytes > size - at) break;
    std::vector<std::byte> bytes(prefix.bytes);
    file.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    if (add_checksum(0, bytes.data(), bytes.size()) != prefix.checksum) break;
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

// --- the journal ---

Journal::Journal(fs::path directory, ParameterStore& store, const Options& options)
    : directory_(std::move(directory)), store_(store), options_(options) {
  std::error_code error;
  fs::create_directories(directory_, error);
  if (error)
    throw_file_error("[ParameterServer] cannot create '" + directory_.string() + "'",
                     error.value());
  restore();
  store_.set_journal(this);
  compact();  // begins a log, and ends a restored one that may be cut off
  thread_ = std::thread([this] { compact_when_large(); });
}

Journal::~Journal() {
  store_.set_journal(nullptr);
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  grown_.notify_all();
  thread_.join();
}

fs::path Journal::file(const char* kind, std::uint64_t generation) const {
  return directory_ / fmt::format("{}-{}", kind, generation);
}

void Journal::restore() {
  std::optional<std::uint64_t> latest;
  std::uint64_t last_log = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory_)) {
    const std::string name = entry.path().filename();
    std::uint64_t number = 0;
    char end = 0;
    if (std::sscanf(name.c_str(), "state-%lu%c", &number, &end) == 1)
      latest = std::max(latest.value_or(0), number);
    if (std::sscanf(name.c_str(), "log-%lu%c", &number, &end) == 1)
      last_log = std::max(last_log, number);
  }
  if (!latest) return;
  generation_ = std::max(*latest, last_log);
  const Records state = read_records(file("state", *latest));
  if (!state.complete || state.records.empty() || !state.records.back().header.end_of_state())
    fail<DataLossError>("[ParameterServer] '{}' is damaged", file("state", *latest).string());
  for (const Record& record : state.records) store_.restore(record.header, record.attachments);
  for (std::uint64_t log = *latest; log <= last_log; ++log) {
    if (!fs::exists(file("log", log))) continue;
    const Records changes = read_records(file("log", log));
    if (!changes.complete && log != last_log)
      fail<DataLossError>("[ParameterServer] '{}' is damaged", file("log", log).string());
    for (const Record& record : changes.records) store_.restore(record.header, record.attachments);
  }
  logging::info("[ParameterServer] restored {} variables from '{}'", store_.num_variables(),
                directory_.string());
}

void Journal::append(const proto::JournalRecord& record, std::vector<rpc::Attachment> attachments) {
  const std::lock_guard lock(mutex_);
  log_->append(record, std::move(attachments));
  if (log_->bytes() >= std::max(options_.compact_after_bytes, 2 * state_bytes_))
    grown_.notify_all();
}

void Journal::compact() {
  const std::lock_guard one(compacting_);
  std::uint64_t next = 0;
  // No change is applied while the new log begins, so it follows the state that is captured.
  const std::vector<Record> state = store_.capture([&] {
    const std::lock_guard lock(mutex_);
    next = generation_ + 1;
    log_ = std::make_unique<RecordWriter>(file("log", next));
    generation_ = next;
  });
  const fs::path path = file("state", next);
  const fs::path beside = path.string() + ".tmp";
  std::uint64_t bytes = 0;
  {
    RecordWriter writer(beside);
    for (const Record& record : state) writer.append(record.header, record.attachments);
    proto::JournalRecord end;
    end.set_end_of_state(true);
    writer.append(end, {});
    bytes = writer.bytes();
  }
  fs::rename(beside, path);
  remove_before(next);
  const std::lock_guard lock(mutex_);
  state_bytes_ = bytes;
}

void Journal::remove_before(std::uint64_t generation) const {
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory_)) {
    const std::string name = entry.path().filename();
    std::uint64_t number = 0;
    if ((std::sscanf(name.c_str(), "state-%lu", &number) == 1 ||
         std::sscanf(name.c_str(), "log-%lu", &number) == 1) &&
        number < generation)
      fs::remove(entry.path(), ignored);
  }
}

std::uint64_t Journal::generation() const {
  const std::lock_guard lock(mutex_);
  return generation_;
}

void Journal::compact_when_large() {
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      grown_.wait(lock, [&] {
        return stopped_ ||
               log_->bytes() >= std::max(options_.compact_after_bytes, 2 * state_bytes_);
      });
      if (stopped_) return;
    }
    try {
      compact();
    } catch (const std::exception& error) {
      logging::warn("[ParameterServer] {}; the log grows until a new state can be written",
                    error.what());
      std::unique_lock lock(mutex_);
      grown_.wait_for(lock, std::chrono::seconds(10), [&] { return stopped_; });
    }
  }
}

}  // namespace tandem::ps
