// A shared memory file that has a name only until the ranks have opened it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace tandem {

// Identifies a process. The start time distinguishes it from a later process with the same pid.
struct ProcessIdentity {
  std::int32_t pid = 0;
  std::uint64_t start_time = 0;  // ticks since boot
  std::uint64_t space = 0;       // the pid namespace

  static ProcessIdentity self();
  // Whether it runs, as far as this process can see. A process in another pid namespace is assumed
  // to run. A zombie counts as ended.
  bool alive() const;
};

// A shared memory file. Memory is committed by reserve() and address space is used by MappedRange,
// so the file may be much larger than either.
class Segment {
 public:
  static constexpr std::size_t kHugePage = std::size_t{2} << 20;

  // Creates a segment with an unpredictable name that only this user may open, and removes the
  // segments of crashed processes. Throws ResourceExhaustedError.
  static Segment create(std::size_t bytes);
  // Opens a segment of another process of this host and user. Throws UnavailableError if it does
  // not exist here, DataLossError if the file is not one that create() makes.
  static Segment open(const std::string& name, std::size_t bytes);
  // The process that created the segment of this name; nothing for another name.
  static std::optional<ProcessIdentity> maker_of(const std::string& name);
  // Removes the name, in the process that created it.
  ~Segment();
  Segment(Segment&& other) noexcept;
  Segment& operator=(Segment&&) = delete;

  const std::string& name() const { return name_; }
  int file() const { return file_; }
  // Removes the name, in any process. The memory lives as long as it is mapped. Further calls do
  // nothing.
  void unlink() noexcept;

 private:
  Segment(std::string name, int file, bool maker)
      : name_(std::move(name)), file_(file), maker_(maker) {}

  std::string name_;
  int file_ = -1;
  bool maker_ = false, named_ = true;
};

// A mapped range of a segment. It begins at a huge page.
class MappedRange {
 public:
  // REQUIRES: `begin` is a multiple of the page size. Throws ResourceExhaustedError.
  MappedRange(std::shared_ptr<const Segment> segment, std::size_t begin, std::size_t bytes);
  ~MappedRange();
  MappedRange(const MappedRange&) = delete;
  MappedRange& operator=(const MappedRange&) = delete;

  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  // Commits or releases memory for whole pages, from data() + at. reserve() returns false if there
  // is not enough. Uses huge pages for the aligned part if the host supports them, so that accesses
  // to other ranks' memory miss the TLB less often.
  bool reserve(std::size_t at, std::size_t bytes) const;
  void release(std::size_t at, std::size_t bytes) const noexcept;

 private:
  std::shared_ptr<const Segment> segment_;
  std::size_t begin_, bytes_;
  std::byte* data_;
};

// Removes segments whose creators have ended. Only files with names that Segment creates are
// checked.
void sweep_segments();

}  // namespace tandem
