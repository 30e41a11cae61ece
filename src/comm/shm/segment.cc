#include "comm/shm/segment.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>

#include "core/random_number.h"
#include "core/status.h"

namespace tandem {
namespace {

struct ProcessState {
  char state = 0;
  std::uint64_t start_time = 0;
};

// Parses fields 3 and 22 of /proc/PID/stat. Field 2, a name, may contain spaces and parentheses.
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

// Names: tandem-NAMESPACE-PID-START-RANDOM.
constexpr const char* kPrefix = "tandem-";

#ifdef MADV_COLLAPSE
constexpr int kMadviseCollapse = MADV_COLLAPSE;
#else
constexpr int kMadviseCollapse = 25;  // Linux constant, missing from older C libraries
#endif

// Maps at a huge page boundary. Null, with errno, if that fails.
std::byte* map_file(int file, std::size_t from, std::size_t bytes) {
  constexpr std::size_t kHuge = Segment::kHugePage;
  void* const place =
      mmap(nullptr, bytes + kHuge, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (place == MAP_FAILED) return nullptr;
  auto* const begin = static_cast<std::byte*>(place);
  const std::size_t before = (kHuge - reinterpret_cast<std::uintptr_t>(begin) % kHuge) % kHuge;
  const int how = MAP_SHARED | MAP_NORESERVE | MAP_FIXED;
  if (mmap(begin + before, bytes, PROT_READ | PROT_WRITE, how, file, static_cast<off_t>(from)) ==
      MAP_FAILED) {
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

std::optional<ProcessIdentity> Segment::maker_of(const std::string& name) {
  const std::string prefix = fmt::format("/{}", kPrefix);
  unsigned long long space = 0, start = 0, number = 0;
  int pid = 0;
  if (name.rfind(prefix, 0) != 0 || std::sscanf(name.c_str() + prefix.size(), "%llu-%d-%llu-%llx",
                                                &space, &pid, &start, &number) != 4)
    return std::nullopt;
  return ProcessIdentity{pid, start, space};
}

void sweep_segments() {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm", error)) {
    const std::string name = fmt::format("/{}", entry.path().filename().string());
    const std::optional<ProcessIdentity> maker = Segment::maker_of(name);
    if (maker && !maker->alive()) shm_unlink(name.c_str());
  }
}

Segment Segment::create(std::size_t bytes) {
  sweep_segments();
  const ProcessIdentity self = ProcessIdentity::self();
  const std::string name = fmt::format("/{}{}-{}-{}-{:016x}", kPrefix, self.space, self.pid,
                                       self.start_time, random_number());
  const int file = shm_open(name.c_str(), O_CREAT | O_EXCL | O_RDWR, 0600);
  if (file < 0)
    fail<ResourceExhaustedError>("[shm] could not make shared memory '{}': {}", name,
                                 std::strerror(errno));
  Segment segment(name, file, true);
  if (ftruncate(file, static_cast<off_t>(bytes)) != 0)
    fail<ResourceExhaustedError>("[shm] could not make {} bytes of shared memory: {}", bytes,
                                 std::strerror(errno));
  return segment;
}

// The name comes from the job's store. Whatever it refers to, memory of another user is never
// mapped, because its contents are trusted. shm_open follows no links and sets FD_CLOEXEC.
Segment Segment::open(const std::string& name, std::size_t bytes) {
  if (name.rfind(std::string("/") + kPrefix, 0) != 0 || name.find('/', 1) != std::string::npos)
    fail<DataLossError>("[shm] '{}' is not a shared memory name of a group", name);
  const int file = shm_open(name.c_str(), O_RDWR, 0);
  if (file < 0)
    fail<UnavailableError>(
        "[shm] could not open rank 0's shared memory '{}': {}; the ranks of this group must be on "
        "one host and share /dev/shm",
        name, std::strerror(errno));
  Segment segment(name, file, false);
  struct stat info {};
  if (fstat(file, &info) != 0)
    fail<UnavailableError>("[shm] could not look at shared memory '{}': {}", name,
                           std::strerror(errno));
  if (!S_ISREG(info.st_mode) || info.st_uid != geteuid() || (info.st_mode & 0777) != 0600 ||
      static_cast<std::size_t>(info.st_size) != bytes)
    fail<DataLossError>(
        "[shm] expected shared memory '{}' of {} bytes that user {} alone may open, got {} bytes "
        "of "
        "user {} with mode {:o}",
        name, bytes, geteuid(), info.st_size, info.st_uid, info.st_mode & 07777);
  return segment;
}

Segment::Segment(Segment&& other) noexcept
    : name_(std::move(other.name_)),
      file_(std::exchange(other.file_, -1)),
      maker_(std::exchange(other.maker_, false)),
      named_(std::exchange(other.named_, false)) {}

Segment::~Segment() {
  if (maker_) unlink();
  if (file_ >= 0) close(file_);
}

void Segment::unlink() noexcept {
  if (std::exchange(named_, false)) shm_unlink(name_.c_str());
}

MappedRange::MappedRange(std::shared_ptr<const Segment> segment, std::size_t begin,
                         std::size_t bytes)
    : segment_(std::move(segment)),
      begin_(begin),
      bytes_(bytes),
      data_(map_file(segment_->file(), begin, bytes)) {
  if (!data_)
    fail<ResourceExhaustedError>("[shm] could not map {} KiB of shared memory: {}", bytes >> 10,
                                 std::strerror(errno));
  madvise(data_, bytes, MADV_DONTDUMP);
}

MappedRange::~MappedRange() { munmap(data_, bytes_); }

bool MappedRange::reserve(std::size_t at, std::size_t bytes) const {
  int result = 0;
  do {
    result =
        fallocate(segment_->file(), 0, static_cast<off_t>(begin_ + at), static_cast<off_t>(bytes));
  } while (result != 0 && errno == EINTR);
  if (result != 0) return false;
  constexpr std::size_t kHuge = Segment::kHugePage;
  const std::size_t first = (at + kHuge - 1) / kHuge * kHuge;
  const std::size_t last = (at + bytes) / kHuge * kHuge;
  // MADV_COLLAPSE works whatever the mount options of /dev/shm, unlike MADV_HUGEPAGE. Small pages
  // remain if the kernel is older than 6.1 or has no free huge page.
  if (first < last) madvise(data_ + first, last - first, kMadviseCollapse);
  return true;
}

void MappedRange::release(std::size_t at, std::size_t bytes) const noexcept {
  fallocate(segment_->file(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
            static_cast<off_t>(begin_ + at), static_cast<off_t>(bytes));
}

}  // namespace tandem
