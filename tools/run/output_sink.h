// Writes the output of a job's ranks.
#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "run/descriptor.h"
#include "run/host.h"

namespace tandem::tools {

// Writes to this process's streams, each line with the prefix of its rank, or to two files per
// rank.
class OutputSink {
 public:
  // `directory` empty: to the streams. Throws the errors of core/file_error.h.
  OutputSink(const JobPlan& plan, const std::string& directory);

  struct Failure {
    int error = 0;           // errno, EPIPE if the reader has closed the stream; 0: success
    std::string_view where;  // the path, "stdout" or "stderr"; valid as long as the sink
  };
  Failure write(int rank, StandardStream output, std::string_view bytes);
  // The last lines that a rank wrote to stderr.
  const std::deque<std::string>& last_errors(int rank) const;

 private:
  struct File {
    std::string path;
    FileDescriptor descriptor;
  };

  std::vector<std::string> prefixes_;
  std::vector<File> files_;  // two per rank; empty if ranks write to streams
  std::vector<std::deque<std::string>> last_errors_;
  std::string text_;
};

}  // namespace tandem::tools
