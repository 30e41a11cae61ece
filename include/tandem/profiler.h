/// @file
/// Profiler: records which operations ran when and on which device, as a Chrome trace for
/// chrome://tracing and Perfetto (ui.perfetto.dev). docs/profiling.md describes the contents.
#pragma once

#include <cstdint>
#include <filesystem>
#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

/// Profiler.
namespace tandem::profiler {

/// Options of start().
struct ProfilerOptions {
  /// File to write, replacing an existing one. Empty: only the totals that stop() returns.
  std::filesystem::path file{};
  /// Number of events to keep; later ones are counted only. An event takes about 250 bytes.
  std::int64_t max_events = 1'000'000;
};

/// Total of the events of one name on one device.
struct OperationTotal {
  std::string name{};      ///< for example "MatMul", or the name of a Scope
  std::string device{};    ///< full name of the device; empty: the host
  std::int64_t calls = 0;  ///< number of events
  double seconds = 0.0;    ///< total duration
  /// Duration without events that ran inside them on the same thread and device.
  double self_seconds = 0.0;
  /// Fraction of the self time of all events of the device, from 0 to 1.
  double share = 0.0;

  /// Average duration.
  double mean_seconds() const { return calls > 0 ? seconds / static_cast<double>(calls) : 0.0; }
};

/// Result of stop().
struct Summary {
  std::int64_t events = 0;   ///< number of events in the file
  std::int64_t dropped = 0;  ///< number of events beyond max_events
  double seconds = 0.0;      ///< time from start() to stop()
  /// One entry per name and device: the host first, then by device, then by decreasing self time.
  /// Without dropped events.
  std::vector<OperationTotal> totals{};

  /// The totals as a table with at most `most` rows per device and one row for the rest.
  std::string to_string(std::size_t most = 20) const;
};
/// Writes to_string().
std::ostream& operator<<(std::ostream& out, const Summary& summary);

/// Starts recording on all threads. Throws FailedPreconditionError if a profile is running or the
/// file cannot be written or is a directory, NotFoundError if the file's directory does not exist,
/// and InvalidArgumentError if max_events is below 1. As tf.profiler.experimental.start.
void start(const ProfilerOptions& options);
/// Stops recording and writes the file, completely or not at all. Device work that has not finished
/// is not included: read a result first to wait for it. Throws FailedPreconditionError if no
/// profile is running. Throws an error with the reason if the file cannot be written
/// (ResourceExhaustedError: disk full); the profile has ended then, too.
Summary stop();
bool running();  ///< whether a profile is running

/// Adds an event with this name, for the time that it exists, to a running profile. Scopes of a
/// thread must end in reverse order. Costs next to nothing if no profile is running. As
/// torch.profiler.record_function.
class Scope {
 public:
  /// Starts the event.
  explicit Scope(std::string_view name);
  /// Ends the event.
  ~Scope();
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  std::string name_;
  std::int64_t begin_ = -1;  // -1: no profile was running
};

}  // namespace tandem::profiler
