#include "ps/snapshots.h"

#include <algorithm>
#include <charconv>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "core/log.h"
#include "core/status.h"
#include "core/threads.h"

namespace tandem::ps {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr std::string_view kSnapshot = "snapshot-", kVariable = "variable-", kClosed = "closed";

// So much more than three times their size states may take.
constexpr std::uint64_t kSmall = 1 << 20;

// No older snapshot has what the file had.
class DamagedChangeError final : public DataLossError {
  using DataLossError::DataLossError;
};

// The numbers of the files whose names start with `prefix`.
std::set<std::uint64_t> numbers_in(const fs::path& directory, std::string_view prefix) {
  std::set<std::uint64_t> numbers;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory)) {
    const std::string name = entry.path().filename();
    const char* const end = name.data() + name.size();
    std::uint64_t number = 0;
    if (!name.starts_with(prefix)) continue;
    const auto [at, error] = std::from_chars(name.data() + prefix.size(), end, number);
    if (error == std::errc() && at == end) numbers.insert(number);
  }
  return numbers;
}

void remove_file(const fs::path& path) {
  std::error_code ignored;
  fs::remove(path, ignored);
}

// Parts of files whose writer was killed.
void remove_parts(const fs::path& directory) {
  for (const fs::directory_entry& entry : fs::directory_iterator(directory)) {
    const std::string name = entry.path().filename();
    if (name.starts_with('.') && name.ends_with(".tmp")) remove_file(entry.path());
  }
}

std::uint64_t size_of(const StateRecord& record) {
  std::uint64_t bytes = 0;
  for (const rpc::Attachment& attachment : record.attachments) bytes += attachment.bytes.size();
  return bytes;
}

// The record of a file that has one.
StateRecord only_record_of(const fs::path& path) {
  StateReader reader(path);
  std::optional<StateRecord> record = reader.next();
  if (!record || reader.next())
    fail<DataLossError>("[ParameterServer] '{}' is damaged", path.string());
  return std::move(*record);
}

std::uint64_t number_of_change(const proto::StateRecord& record) {
  return record.has_removed() ? record.removed().change() : record.variable().change();
}

}  // namespace

Snapshots::State Snapshots::state_of(std::uint64_t number,
                                     const proto::StateRecord::Counts& counts) {
  return {.number = number, .updates = counts.updates(), .changes = counts.changes()};
}

Snapshots::Snapshots(fs::path directory, ParameterStore& store, const Options& options)
    : directory_(std::move(directory)), store_(store), options_(options) {
  remove_parts(directory_);
  restore();
  store_.set_kept(states_.front().updates);
  store_.set_keeper([this](StateRecord record) { keep(std::move(record)); });
  thread_ = start_thread([this] { write_repeatedly(); });
}

Snapshots::~Snapshots() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  changed_.notify_all();
  thread_.join();
  store_.set_keeper(nullptr);
  try {
    if (!ended_ && changed()) write();
  } catch (const std::exception& error) {
    logging::warn("{}; the updates since the last snapshot are lost", error.what());
  }
}

void Snapshots::end() {
  const std::lock_guard lock(mutex_);
  ended_ = true;
}

fs::path Snapshots::file_of(std::uint64_t number) const {
  return directory_ / fmt::format("{}{}", kSnapshot, number);
}

fs::path Snapshots::change_of(VariableId id) const {
  return directory_ / fmt::format("{}{}", kVariable, id);
}

void Snapshots::restore() {
  std::set<std::uint64_t> numbers = numbers_in(directory_, kSnapshot);
  // Until there are two snapshots, the chief's changes lead from an empty store to the present.
  const bool from_start = numbers.empty() || *numbers.rbegin() == 1;
  std::vector<std::uint64_t> damaged;
  const auto try_newest = [&] {
    const std::uint64_t number = numbers.empty() ? 0 : *numbers.rbegin();
    try {
      restore_from(number);
      return true;
    } catch (const DamagedChangeError&) {
      throw;
    } catch (const DataLossError& error) {
      logging::warn("{}: the server continues from what it held before", error.what());
    }
    store_.clear();
    damaged.push_back(number);
    numbers.erase(number);
    return false;
  };
  while (!try_newest())
    if (numbers.empty() && !from_start)
      fail<DataLossError>(
          "[ParameterServer] no snapshot in '{}' is whole: remove the directory to start anew",
          directory_.string());
  // The next restart must not take them for newer ones.
  for (const std::uint64_t number : damaged) remove_file(file_of(number));
  find_older(numbers, from_start);
  restore_closed();
  if (store_.num_variables() > 0)
    logging::info("[ParameterServer] restored {} variables and {} updates from '{}'",
                  store_.num_variables(), store_.updates(), directory_.string());
}

// The state before the newest one.
void Snapshots::find_older(std::set<std::uint64_t> numbers, bool from_start) {
  if (from_start && numbers.size() == 1) states_.insert(states_.begin(), State());
  numbers.erase(states_.back().number);
  while (!numbers.empty()) {
    const std::uint64_t number = *numbers.rbegin();
    numbers.erase(number);
    if (states_.size() == 1) try {
        const std::optional<StateRecord> first = StateReader(file_of(number)).next();
        if (first && first->header.has_counts()) {
          states_.insert(states_.begin(), state_of(number, first->header.counts()));
          continue;
        }
      } catch (const DataLossError&) {
      }
    remove_file(file_of(number));
  }
}

void Snapshots::restore_from(std::uint64_t number) {
  states_ = {State{.number = number}};
  if (number == 0) return restore_changes(0);
  StateReader reader(file_of(number));
  bool restored_changes = false;
  while (const std::optional<StateRecord> record = reader.next()) {
    if (record->header.has_counts()) {
      states_.back() = state_of(number, record->header.counts());
    } else if (!record->header.has_variable() && !restored_changes) {
      restore_changes(states_.back().changes);  // the updates below need their variables
      restored_changes = true;
    }
    store_.restore(*record);
  }
  if (!restored_changes) restore_changes(states_.back().changes);
}

void Snapshots::restore_changes(std::uint64_t after) {
  kept_.clear();
  for (const std::uint64_t id : numbers_in(directory_, kVariable)) {
    try {
      const StateRecord record = only_record_of(change_of(id));
      kept_[id] = number_of_change(record.header);
      if (kept_[id] > after) store_.restore(record);
    } catch (const DataLossError& error) {
      if (!store_.has(id)) throw DamagedChangeError(error.what());
      logging::warn("{}: the variable is that of the snapshot", error.what());
    }
  }
}

// A later snapshot has it, too.
void Snapshots::restore_closed() {
  if (!fs::exists(directory_ / kClosed)) return;
  try {
    store_.restore(only_record_of(directory_ / kClosed));
  } catch (const DataLossError& error) {
    logging::warn("{}: calls that were cancelled may have an effect", error.what());
  }
}

void Snapshots::keep(StateRecord record) {
  const proto::StateRecord& header = record.header;
  const VariableId id = header.has_removed() ? header.removed().id() : header.variable().id();
  const std::uint64_t change = number_of_change(header);
  const bool closes = header.has_closed_below();
  const std::lock_guard lock(files_);
  try {
    make_room(size_of(record));
    StateWriter writer(closes ? directory_ / kClosed : change_of(id));
    writer.append(std::move(record));
    writer.commit();
    if (!closes) kept_[id] = change;
  } catch (const Error& error) {
    logging::warn("{}: if the server ends before it has written a snapshot, this change is lost",
                  error.what());
  }
}

bool Snapshots::changed() const {
  const std::lock_guard lock(files_);
  return store_.updates() != states_.back().updates || store_.changes() != states_.back().changes;
}

void Snapshots::write() {
  const std::lock_guard one(writing_);
  std::vector<StateRecord> records = store_.capture();
  State state;
  {
    const std::lock_guard lock(files_);
    state = state_of(states_.back().number + 1, records.front().header.counts());
    for (const StateRecord& record : records) writing_bytes_ += size_of(record);
    make_room(0);
  }
  try {
    StateWriter writer(file_of(state.number));
    // A variable that was written may be updated without a copy.
    for (StateRecord& record : records) writer.append(std::move(record));
    writer.commit();
  } catch (...) {
    const std::lock_guard lock(files_);
    writing_bytes_ = 0;
    throw;
  }
  add(state);
}

void Snapshots::add(const State& state) {
  const std::lock_guard lock(files_);
  writing_bytes_ = 0;
  states_.push_back(state);
  while (states_.size() > 2) forget_oldest();
}

void Snapshots::forget_oldest() {
  remove_file(file_of(states_.front().number));
  states_.erase(states_.begin());
  store_.set_kept(states_.front().updates);
  std::erase_if(kept_, [&](const auto& entry) {
    if (entry.second > states_.front().changes) return false;
    remove_file(change_of(entry.first));
    return true;
  });
}

// Keeps the directory below the size of three states, with what is being written and `bytes` more,
// also if the chief assigns to many variables.
void Snapshots::make_room(std::uint64_t bytes) {
  if (states_.size() < 2) return;
  std::uint64_t all = writing_bytes_ + bytes, newest = 0, changes = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory_)) {
    const std::string name = entry.path().filename();
    std::error_code gone;
    const std::uint64_t size = entry.file_size(gone);
    if (gone || name.starts_with('.')) continue;
    all += size;
    if (name.starts_with(kVariable)) changes += size;
    if (entry.path() == file_of(states_.back().number)) newest = size;
  }
  if (all > 3 * std::max({writing_bytes_, newest, changes}) + kSmall) forget_oldest();
}

void Snapshots::write_repeatedly() {
  // The store does not tell of its updates.
  constexpr std::chrono::milliseconds kLook{100};
  const auto pause = options_.updates > 0 ? std::min(kLook, options_.interval) : options_.interval;
  Clock::time_point last = Clock::now();
  std::uint64_t updates = store_.updates();
  bool failed = false;
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      if (changed_.wait_for(lock, pause, [&] { return stopped_; })) return;
    }
    const bool due = Clock::now() - last >= options_.interval ||
                     (options_.updates > 0 && store_.updates() - updates >= options_.updates);
    if (!due) continue;
    last = Clock::now();
    updates = store_.updates();
    if (!changed()) continue;
    try {
      write();
      if (std::exchange(failed, false))
        logging::info("[ParameterServer] snapshots can be written again");
    } catch (const std::exception& error) {
      if (!std::exchange(failed, true))
        logging::warn("{}: snapshots are tried until one can be written", error.what());
    }
  }
}

}  // namespace tandem::ps
