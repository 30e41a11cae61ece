// Shared memory, with a name for as long as it takes the ranks to find it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

namespace tandem {

// A process that may be gone: its number and when it began, so that another process with the same
// number is not taken for it.
struct ProcessIdentity {
  std::int32_t pid = 0;
  std::uint64_t start_time = 0;  // ticks since boot
  std::uint64_t space = 0;       // the namespace of process numbers

  static ProcessIdentity self();
  // Whether it runs, as far as this process can tell: what is in another namespace is taken to. A
  // process that has ended counts as gone before its parent has asked for it.
  bool alive() const;
};

// A file of shared memory. It takes memory where that is reserved, and address space where it is
// mapped (MappedRange), so that it may be much larger than either.
class Segment {
 public:
  static constexpr std::size_t kHugePage = std::size_t{2} << 20;

  // Makes one, which this user alone may open, under a name that nobody can foresee, and removes
  // the segments of crashed processes. Throws ResourceExhaustedError.
  static Segment create(std::size_t bytes);
  // Opens the segment of another process of this host and user. Throws UnavailableError when it is
  // not here, DataLossError when the name leads to anything that create() does not make.
  static Segment open(const std::string& name, std::size_t bytes);
  // Takes the name away in the process that made it.
  ~Segment();
  Segment(Segment&& other) noexcept;
  Segment& operator=(Segment&&) = delete;

  const std::string& name() const { return name_; }
  int file() const { return file_; }
  // Takes the name away, in any process; the memory lives as long as it is mapped. Does nothing the
  // second time.
  void unlink() noexcept;

 private:
  Segment(std::string name, int file, bool maker)
      : name_(std::move(name)), file_(file), maker_(maker) {}

  std::string name_;
  int file_ = -1;
  bool maker_ = false, named_ = true;
};

// A range of a segment in this process's memory. It begins with a huge page.
class MappedRange {
 public:
  // REQUIRES: `begin` is a multiple of the page size. Throws ResourceExhaustedError.
  MappedRange(std::shared_ptr<const Segment> segment, std::size_t begin, std::size_t bytes);
  ~MappedRange();
  MappedRange(const MappedRange&) = delete;
  MappedRange& operator=(const MappedRange&) = delete;

  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  // Takes memory for whole pages from data() + at on, or gives it back. reserve: false when there
  // is none. The whole huge pages among them become such where the machine can, so that ranks look
  // up fewer addresses in each other's memory.
  bool reserve(std::size_t at, std::size_t bytes) const;
  void release(std::size_t at, std::size_t bytes) const noexcept;

 private:
  std::shared_ptr<const Segment> segment_;
  std::size_t begin_, bytes_;
  std::byte* data_;
};

// Removes segments whose makers are gone. Only names that Segment gives are looked at.
void sweep_segments();

}  // namespace tandem
