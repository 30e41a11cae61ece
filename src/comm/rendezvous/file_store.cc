#include "comm/rendezvous/file_store.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <thread>
#include <utility>

#include "comm/rendezvous/private_file.h"
#include "core/status.h"

namespace tandem {
namespace {

constexpr std::string_view kMagic = "tandemkv";
constexpr auto kLockLimit = std::chrono::seconds(30);
// Offsets in the file that are used for locking only; they contain no data.
constexpr off_t kDataLock = off_t{1} << 40, kOwnerLock = kDataLock + 1;
constexpr std::uint32_t kRemoved = 0xffffffff;  // instead of a value's length

// checksum of the rest, length of the key, length of the value
constexpr std::size_t kRecordHead = 3 * sizeof(std::uint32_t);

[[noreturn]] void fail_on(const std::string& path, const char* what) {
  fail<UnavailableError>("[FileStore] '{}': {}: {}", path, what, std::strerror(errno));
}

std::uint32_t word(std::string_view bytes, std::size_t index) {
  std::uint32_t value = 0;
  std::memcpy(&value, bytes.data() + index * sizeof(value), sizeof(value));
  return value;
}

std::uint32_t checksum(std::string_view bytes) {
  return static_cast<std::uint32_t>(
      crc32(0, reinterpret_cast<const Bytef*>(bytes.data()), static_cast<uInt>(bytes.size())));
}

std::string record_of(const std::string& key, std::optional<std::string_view> value) {
  constexpr std::size_t kMaxBytes = std::size_t{1} << 30;
  if (key.size() + (value ? value->size() : 0) > kMaxBytes)
    fail<InvalidArgumentError>("[FileStore] expected at most {} bytes", kMaxBytes);
  const std::array<std::uint32_t, 2> lengths = {
      static_cast<std::uint32_t>(key.size()),
      value ? static_cast<std::uint32_t>(value->size()) : kRemoved};
  std::string body(sizeof(lengths), '\0');
  std::memcpy(body.data(), lengths.data(), sizeof(lengths));
  body.append(key).append(value.value_or(""));
  const std::uint32_t sum = checksum(body);
  std::string record(sizeof(sum), '\0');
  std::memcpy(record.data(), &sum, sizeof(sum));
  return record + body;
}

// Applies the record at the front of `bytes` and returns its size; 0 if it is incomplete.
std::size_t apply(std::string_view bytes, KeyValues& values) {
  if (bytes.size() < kRecordHead) return 0;
  const std::size_t key_bytes = word(bytes, 1);
  const bool removed = word(bytes, 2) == kRemoved;
  const std::size_t value_bytes = removed ? 0 : word(bytes, 2);
  const std::size_t size = kRecordHead + key_bytes + value_bytes;
  if (size > bytes.size() || word(bytes, 0) != checksum(bytes.substr(4, size - 4))) return 0;
  const std::string key(bytes.substr(kRecordHead, key_bytes));
  if (removed) {
    values.remove(key);
  } else {
    values.set(key, bytes.substr(kRecordHead + key_bytes, value_bytes));
  }
  return size;
}

// Locks one byte; false if another process holds a lock on it.
bool try_lock(const Socket& file, short type, off_t byte) {
  struct flock lock = {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = byte;
  lock.l_len = 1;
  return fcntl(file.descriptor(), F_OFD_SETLK, &lock) == 0;
}

// Private, because the file may contain a job's secret.
Socket open_file(const std::string& path) {
  Socket file(open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file.is_open() && errno == ELOOP)
    fail<FailedPreconditionError>("[FileStore] '{}' is a symbolic link, expected a file", path);
  if (!file.is_open()) fail_on(path, "cannot open it");
  require_private(file, path, "name another file, or remove this one");
  return file;
}

// Whether the path still refers to the open file.
bool is_current(const Socket& file, const std::string& path) {
  struct stat open_one = {}, there = {};
  return fstat(file.descriptor(), &open_one) == 0 && stat(path.c_str(), &there) == 0 &&
         open_one.st_ino == there.st_ino && open_one.st_dev == there.st_dev;
}

void write_all(const Socket& file, const std::string& path, std::string_view bytes, off_t at) {
  while (!bytes.empty()) {
    const ssize_t written = pwrite(file.descriptor(), bytes.data(), bytes.size(), at);
    if (written < 0) {
      if (errno == EINTR) continue;
      fail_on(path, "cannot write it");
    }
    bytes.remove_prefix(static_cast<std::size_t>(written));
    at += written;
  }
}

std::string read_all(const Socket& file, const std::string& path) {
  std::string bytes;
  std::array<char, 65536> part;
  while (true) {
    const ssize_t count =
        pread(file.descriptor(), part.data(), part.size(), static_cast<off_t>(bytes.size()));
    if (count == 0) return bytes;
    if (count > 0) {
      bytes.append(part.data(), static_cast<std::size_t>(count));
    } else if (errno != EINTR) {
      fail_on(path, "cannot read it");
    }
  }
}

}  // namespace

FileStore::FileStore(std::string path) : path_(std::move(path)) {
  std::int64_t end = 0;
  read(open_locked(F_RDLCK), end);
}

void FileStore::set(const std::string& key, std::string_view value) {
  const std::string record = record_of(key, value);
  const Socket file = open_locked(F_WRLCK);
  std::int64_t end = 0;
  read(file, end).set(key, value);  // throws if there is no room for it
  append(file, end, record);
}

std::string FileStore::get(const std::string& key, TimePoint deadline) {
  for (auto pause = std::chrono::milliseconds(1);;
       pause = std::min(pause * 2, std::chrono::milliseconds(50))) {
    {
      const Socket file = open_locked(F_RDLCK);
      std::int64_t end = 0;
      const KeyValues values = read(file, end);
      if (const std::string* value = values.find(key)) return *value;
    }
    const TimePoint now = Clock::now();
    if (now >= deadline) fail<DeadlineExceededError>("{}", not_set_in_time(key));
    std::this_thread::sleep_for(std::min<Clock::duration>(pause, deadline - now));
  }
}

std::int64_t FileStore::add(const std::string& key, std::int64_t delta) {
  const Socket file = open_locked(F_WRLCK);
  std::int64_t end = 0;
  KeyValues values = read(file, end);
  const std::int64_t sum = values.add(key, delta);
  append(file, end, record_of(key, std::to_string(sum)));
  return sum;
}

void FileStore::remove(const std::string& key) {
  const Socket file = open_locked(F_WRLCK);
  std::int64_t end = 0;
  if (read(file, end).remove(key)) append(file, end, record_of(key, std::nullopt));
}

void FileStore::own() {
  owned_ = open_locked(F_WRLCK);
  if (!try_lock(owned_, F_WRLCK, kOwnerLock)) {
    owned_.close();
    fail<AlreadyExistsError>("[FileStore] '{}' belongs to another job, which is running", path_);
  }
  if (ftruncate(owned_.descriptor(), 0) != 0) fail_on(path_, "cannot empty it");
  try_lock(owned_, F_UNLCK, kDataLock);
}

bool FileStore::is_owned() const {
  const Socket file = open_locked(F_RDLCK);
  return !try_lock(file, F_WRLCK, kOwnerLock);
}

void FileStore::remove_file() { unlink(path_.c_str()); }

Socket FileStore::open_locked(short type) const {
  const TimePoint deadline = Clock::now() + kLockLimit;
  while (true) {
    Socket file = open_file(path_);
    if (try_lock(file, type, kDataLock)) {
      if (is_current(file, path_)) return file;  // not one that was removed meanwhile
    } else if (errno != EAGAIN && errno != EACCES) {
      fail_on(path_, "cannot lock it");
    }
    if (Clock::now() >= deadline)
      fail<DeadlineExceededError>("[FileStore] '{}' stays locked by another process", path_);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

KeyValues FileStore::read(const Socket& file, std::int64_t& end) const {
  KeyValues values;
  const std::string bytes = read_all(file, path_);
  const std::string_view front = std::string_view(bytes).substr(0, kMagic.size());
  if (front != kMagic.substr(0, front.size()))
    fail<InvalidArgumentError>("[FileStore] '{}' is not a file store", path_);
  end = 0;
  if (front.size() < kMagic.size()) return values;  // new, or its first writer was interrupted
  std::string_view rest = std::string_view(bytes).substr(kMagic.size());
  while (const std::size_t size = apply(rest, values)) rest.remove_prefix(size);
  end = static_cast<std::int64_t>(bytes.size() - rest.size());
  return values;
}

void FileStore::append(const Socket& file, std::int64_t end, const std::string& record) const {
  if (ftruncate(file.descriptor(), end) != 0) fail_on(path_, "cannot cut it");
  write_all(file, path_, end == 0 ? std::string(kMagic) + record : record, end);
}

}  // namespace tandem
