#include "ps/journal.h"

#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>

#include "core/file_error.h"
#include "core/log.h"
#include "core/status.h"
#include "core/threads.h"

namespace tandem::ps {

namespace fs = std::filesystem;

Journal::Journal(fs::path directory, ParameterStore& store, const Options& options)
    : directory_(std::move(directory)), store_(store), options_(options) {
  std::error_code error;
  fs::create_directories(directory_, error);
  if (error)
    throw_file_error("[ParameterServer] cannot create '" + directory_.string() + "'",
                     error.value());
  restore();
  store_.set_log(this);
  compact();  // begins a log, and ends a restored one that may be cut off
  thread_ = start_thread([this] { compact_when_large(); });
}

Journal::~Journal() {
  store_.set_log(nullptr);
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
  const Records state = read_records(file("state", *latest), *latest);
  if (!state.complete || state.records.empty() || !state.records.back().header.end_of_state())
    fail<DataLossError>("[ParameterServer] '{}' is damaged", file("state", *latest).string());
  for (const Record& record : state.records) store_.restore(record.header, record.attachments);
  for (std::uint64_t log = *latest; log <= last_log; ++log) {
    if (!fs::exists(file("log", log))) continue;
    const Records changes = read_records(file("log", log), log);
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

std::unique_ptr<RecordWriter> Journal::begin_log(std::uint64_t generation) const {
  std::error_code ignored;  // there may be no spare file
  fs::rename(directory_ / "spare", file("log", generation), ignored);
  return std::make_unique<RecordWriter>(file("log", generation), generation);
}

void Journal::compact() {
  const std::lock_guard one(compacting_);
  std::uint64_t next = 0;
  // No change is applied while the new log begins, so it follows the state that is captured.
  const std::vector<Record> state = store_.capture([&] {
    const std::lock_guard lock(mutex_);
    next = generation_ + 1;
    if (log_) log_->finish();
    log_ = begin_log(next);
    generation_ = next;
  });
  const fs::path path = file("state", next);
  const fs::path beside = path.string() + ".tmp";
  std::uint64_t bytes = 0;
  {
    RecordWriter writer(beside, next);
    for (const Record& record : state) writer.append(record.header, record.attachments);
    proto::JournalRecord end;
    end.set_end_of_state(true);
    writer.append(end, {});
    writer.finish();
    writer.sync();  // the files that it replaces are removed
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
    if (std::sscanf(name.c_str(), "state-%lu", &number) == 1 && number < generation)
      fs::remove(entry.path(), ignored);
    if (std::sscanf(name.c_str(), "log-%lu", &number) == 1 && number < generation)
      fs::rename(entry.path(), directory_ / "spare", ignored);
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
