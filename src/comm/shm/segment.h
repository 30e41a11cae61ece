// Shared memory with a name, for as long as it takes the ranks to find it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

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

// A mapping of shared memory. Memory is taken when it is first reserved, not when the segment is
// made, so that a segment may be much larger than what is used of it. It begins with a huge page.
class Segment {
 public:
  static constexpr std::size_t kHugePage = std::size_t{2} << 20;

  // Makes one under a name that no other process uses, and removes what crashed processes have
  // left. Throws ResourceExhaustedError.
  static Segment create(std::size_t bytes);
  // Maps the segment of another process of this host. Throws UnavailableError when it is not here.
  static Segment open(const std::string& name, std::size_t bytes);
  ~Segment();
  Segment(Segment&& other) noexcept;
  Segment& operator=(Segment&&) = delete;

  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  const std::string& name() const { return name_; }
  // Takes the name away; the memory lives as long as it is mapped. Does nothing the second time.
  void unlink() noexcept;
  // Takes memory for a range, in whole pages, or gives it back. reserve: false when there is none.
  // The whole huge pages of a range that is reserved become such where the machine can, so that
  // ranks look up fewer addresses in each other's memory.
  bool reserve(std::size_t begin, std::size_t bytes) const;
  void release(std::size_t begin, std::size_t bytes) const noexcept;

 private:
  Segment(std::string name, int file, std::size_t bytes, bool owner);

  std::string name_;
  int file_ = -1;
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
  bool linked_ = false;  // this process has to take the name away
};

// Removes segments whose makers are gone. Only names that Segment gives are looked at.
void sweep_segments();

}  // namespace tandem
