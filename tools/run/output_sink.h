// Where the lines of a job's ranks go.
#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "run/descriptor.h"
#include "run/host.h"

namespace tandem::tools {

// To this process's streams, each line behind its rank, or into two files a rank.
class OutputSink {
 public:
  // `directory` empty: to the streams. Throws the errors of core/file_error.h.
  OutputSink(const Plan& plan, const std::string& directory);

  struct Failure {
    int error = 0;           // EPIPE: nobody reads the stream any more; 0: all was written
    std::string_view where;  // the path, "stdout" or "stderr"; lives as long as the sink
  };
  Failure write(int rank, Output output, std::string_view bytes);
  // The last lines of a rank on stderr.
  const std::deque<std::string>& last_errors(int rank) const;

 private:
  struct File {
    std::string path;
    Descriptor descriptor;
  };

  std::vector<std::string> prefixes_;
  std::vector<File> files_;  // two a rank; or none
  std::vector<std::deque<std::string>> last_errors_;
  std::string text_;
};

}  // namespace tandem::tools
