#include "comm/shm/segment.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>

#include "core/status.h"

namespace tandem {
namespace {

struct ProcessState {
  char state = 0;
  std::uint64_t start_time = 0;
};

// Fields 3 and 22 of /proc/PID/stat; the second field, a name, may hold blanks and brackets.
std::optional<ProcessState> read_state(std::int32_t pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string text;
  if (!std::getline(file, text)) return std::nullopt;
  const std::size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream fields(text.substr(name_end + 1));
  ProcessState result;
  fields >> result.state;
  std::string skipped;
  for (int field = 4; field < 22; ++field) fields >> skipped;
  fields >> result.start_time;
  if (!fields) return std::nullopt;
  return result;
}

// Names: tandem-NAMESPACE-PID-START-NUMBER.
constexpr const char* kPrefix = "tandem-";

#ifdef MADV_COLLAPSE
constexpr int kMadviseCollapse = MADV_COLLAPSE;
#else
constexpr int kMadviseCollapse = 25;  // of Linux; C libraries older than the kernel lack the name
#endif

// From the begin of a huge page on; null with errno when that cannot be had.
std::byte* map_file(int file, std::size_t bytes) {
  constexpr std::size_t kHuge = Segment::kHugePage;
  void* const place =
      mmap(nullptr, bytes + kHuge, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (place == MAP_FAILED) return nullptr;
  auto* const begin = static_cast<std::byte*>(place);
  const std::size_t before = (kHuge - reinterpret_cast<std::uintptr_t>(begin) % kHuge) % kHuge;
  const int how = MAP_SHARED | MAP_NORESERVE | MAP_FIXED;
  if (mmap(begin + before, bytes, PROT_READ | PROT_WRITE, how, file, 0) == MAP_FAILED) {
    const int error = errno;
    munmap(place, bytes + kHuge);
    errno = error;
    return nullptr;
  }
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const std::size_t end = before + (bytes + page - 1) / page * page;
  if (before > 0) munmap(begin, before);
  if (end < bytes + kHuge) munmap(begin + end, bytes + kHuge - end);
  return begin + before;
}

std::uint64_t process_namespace() {
  struct stat info {};
  return ::stat("/proc/self/ns/pid", &info) == 0 ? info.st_ino : 0;
}

}  // namespace

ProcessIdentity ProcessIdentity::self() {
  const auto pid = static_cast<std::int32_t>(getpid());
  const auto state = read_state(pid);
  return {pid, state ? state->start_time : 0, process_namespace()};
}

bool ProcessIdentity::alive() const {
  if (space != process_namespace()) return true;
  const auto state = read_state(pid);
  return state && state->start_time == start_time && state->state != 'Z' && state->state != 'X';
}

void sweep_segments() {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm", error)) {
    const std::string name = entry.path().filename().string();
    unsigned long long space = 0, start = 0;
    int pid = 0, number = 0;
    if (name.rfind(kPrefix, 0) != 0 ||
        std::sscanf(name.c_str() + std::strlen(kPrefix), "%llu-%d-%llu-%d", &space, &pid, &start,
                    &number) != 4)
      continue;
    if (!ProcessIdentity{pid, start, space}.alive()) shm_unlink(("/" + name).c_str());
  }
}

Segment Segment::create(std::size_t bytes) {
  static std::atomic<int> next{0};
  sweep_segments();
  const ProcessIdentity self = ProcessIdentity::self();
  const std::string name = fmt::format("/{}{}-{}-{}-{}", kPrefix, self.space, self.pid,
                                       self.start_time, next.fetch_add(1));
  const int file = shm_open(name.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
  if (file < 0)
    fail<ResourceExhaustedError>("[shm] could not make shared memory '{}': {}", name,
                                 std::strerror(errno));
  if (ftruncate(file, static_cast<off_t>(bytes)) != 0) {
    const int error = errno;
    close(file);
    shm_unlink(name.c_str());
    fail<ResourceExhaustedError>("[shm] could not make {} bytes of shared memory: {}", bytes,
                                 std::strerror(error));
  }
  return Segment(name, file, bytes, true);
}

Segment Segment::open(const std::string& name, std::size_t bytes) {
  const int file = shm_open(name.c_str(), O_RDWR | O_CLOEXEC, 0600);
  if (file < 0)
    fail<UnavailableError>(
        "[shm] could not open rank 0's shared memory '{}': {}; the ranks of this group must be on "
        "one host and share /dev/shm",
        name, std::strerror(errno));
  return Segment(name, file, bytes, false);
}

Segment::Segment(std::string name, int file, std::size_t bytes, bool owner)
    : name_(std::move(name)),
      file_(file),
      data_(map_file(file, bytes)),
      bytes_(bytes),
      linked_(owner) {
  if (!data_) {
    const int error = errno;
    close(file_);
    unlink();
    fail<ResourceExhaustedError>("[shm] could not map {} bytes of shared memory: {}", bytes,
                                 std::strerror(error));
  }
  madvise(data_, bytes, MADV_DONTDUMP);
}

Segment::Segment(Segment&& other) noexcept
    : name_(std::move(other.name_)),
      file_(std::exchange(other.file_, -1)),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(other.bytes_),
      linked_(std::exchange(other.linked_, false)) {}

Segment::~Segment() {
  unlink();
  if (data_) munmap(data_, bytes_);
  if (file_ >= 0) close(file_);
}

void Segment::unlink() noexcept {
  if (std::exchange(linked_, false)) shm_unlink(name_.c_str());
}

bool Segment::reserve(std::size_t begin, std::size_t bytes) const {
  int result = 0;
  do {
    result = fallocate(file_, 0, static_cast<off_t>(begin), static_cast<off_t>(bytes));
  } while (result != 0 && errno == EINTR);
  if (result != 0) return false;
  const std::size_t first = (begin + kHugePage - 1) / kHugePage * kHugePage;
  const std::size_t last = (begin + bytes) / kHugePage * kHugePage;
  // Unlike MADV_HUGEPAGE it does not ask how /dev/shm was mounted. Where the kernel is older than
  // 6.1 or has no huge page left, small pages do.
  if (first < last) madvise(data_ + first, last - first, kMadviseCollapse);
  return true;
}

void Segment::release(std::size_t begin, std::size_t bytes) const noexcept {
  fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(begin),
            static_cast<off_t>(bytes));
}

}  // namespace tandem
