// A profile: what ran where and when, as a Chrome trace, which chrome://tracing, Perfetto
// (ui.perfetto.dev) and others show. docs/profiling.md tells what is in it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::profiler {

struct ProfilerOptions {
  /// Replaced when there is one. Empty: no file; the totals that stop() returns are all.
  std::filesystem::path file{};
  // What comes later is counted instead of kept. An event takes some 250 bytes.
  std::int64_t max_events = 1'000'000;
};

/// What the events of one name on one device add up to.
struct OperationTotal {
  std::string name{};    ///< "MatMul", or the name of a Scope
  std::string device{};  ///< its full name; empty: the host
  std::int64_t calls = 0;
  double seconds = 0.0;  ///< of all calls together
  /// Without the time of events that ran inside them on the same thread and device.
  double self_seconds = 0.0;
  /// Of the self time of all events of the device, from 0 to 1.
  double share = 0.0;

  double mean_seconds() const { return calls > 0 ? seconds / static_cast<double>(calls) : 0.0; }
};

struct Summary {
  std::int64_t events = 0;   // in the file
  std::int64_t dropped = 0;  // beyond max_events
  /// One for each name and device: the host's first, then by device; within a device the largest
  /// self time first. Dropped events are not in them.
  std::vector<OperationTotal> totals{};

  /// The totals as a table, with at most `most` rows a device and the rest in one.
  std::string to_string(std::size_t most = 20) const;
};
/// Writes to_string().
std::ostream& operator<<(std::ostream& out, const Summary& summary);

// Records from now on, on all threads. One profile at a time: FailedPreconditionError while another
// one runs. Throws NotFoundError when the file's directory is not there, FailedPreconditionError
// when it may not be written or is a directory, and InvalidArgumentError for max_events below 1.
void start(const ProfilerOptions& options);
// Writes the file, whole or not at all. Work that devices have not done by then is not in it: read
// a result, or anything else that waits for it, first. Throws FailedPreconditionError when no
// profile runs, and where the file cannot be written an error that says why
// (ResourceExhaustedError: the disk is full); the profile has ended all the same.
Summary stop();
bool running();

// Shows in the profile what the calling thread does while it lives, under a name of the program's
// own. Costs next to nothing while no profile runs. Scopes of a thread end in the reverse order of
// their making.
class Scope {
 public:
  explicit Scope(std::string_view name);
  ~Scope();
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  std::string name_;
  std::int64_t begin_ = -1;  // no profile ran
};

}  // namespace tandem::profiler
