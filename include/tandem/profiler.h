// A profile: what ran where and when, as a Chrome trace, which chrome://tracing, Perfetto
// (ui.perfetto.dev) and others show. docs/profiling.md tells what is in it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace tandem::profiler {

struct ProfilerOptions {
  std::filesystem::path file;  // replaced when there is one
  // What comes later is counted instead of kept. An event takes some 250 bytes.
  std::int64_t max_events = 1'000'000;
};

struct Summary {
  std::int64_t events = 0;   // in the file
  std::int64_t dropped = 0;  // beyond max_events
};

// Records from now on, on all threads. One profile at a time: FailedPreconditionError while another
// one runs. Throws NotFoundError when the file cannot be made, and InvalidArgumentError for
// max_events below 1.
void start(const ProfilerOptions& options);
// Writes the file. Work that devices have not done by then is not in it: read a result, or anything
// else that waits for it, first. Throws FailedPreconditionError when no profile runs and
// ResourceExhaustedError when the file cannot be written; the profile has ended all the same.
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
