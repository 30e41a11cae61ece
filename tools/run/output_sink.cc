#include "run/output_sink.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "core/file_error.h"

namespace tandem::tools {
namespace {

constexpr std::size_t kLastLines = 12, kLastBytes = 400;  // of each line

std::string file_name(std::string label) {
  std::replace(label.begin(), label.end(), ':', '_');
  return label.find_first_not_of("0123456789") == std::string::npos ? "rank_" + label : label;
}

// Returns 0 or errno.
int write_all(int descriptor, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(descriptor, bytes.data(), bytes.size());
    if (count >= 0) {
      bytes.remove_prefix(static_cast<std::size_t>(count));
    } else if (errno == EAGAIN) {  // another process has made the terminal non-blocking
      pollfd entry = {descriptor, POLLOUT, 0};
      poll(&entry, 1, 100);
    } else if (errno != EINTR) {
      return errno;
    }
  }
  return 0;
}

}  // namespace

OutputSink::OutputSink(const JobPlan& plan, const std::string& directory)
    : last_errors_(plan.ranks.size()) {
  for (const PlannedRank& rank : plan.ranks) prefixes_.push_back("[" + rank.label + "] ");
  if (directory.empty()) return;
  std::error_code ignored;  // opening the files reports errors
  std::filesystem::create_directories(directory, ignored);
  for (const PlannedRank& rank : plan.ranks)
    for (const char* suffix : {"out", "err"}) {
      const std::string path = fmt::format("{}/{}.{}", directory, file_name(rank.label), suffix);
      files_.push_back({path, FileDescriptor(open(
                                  path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666))});
      if (!files_.back().descriptor.is_open())
        throw_file_error(fmt::format("[run] --output: cannot write '{}'", path), errno);
    }
}

OutputSink::Failure OutputSink::write(int rank, StandardStream output, std::string_view bytes) {
  const auto index = static_cast<std::size_t>(rank);
  const bool error = output == StandardStream::kStderr;
  if (error) {
    std::deque<std::string>& lines = last_errors_[index];
    lines.emplace_back(bytes.substr(0, std::min(bytes.find('\n'), kLastBytes)));
    if (lines.size() > kLastLines) lines.pop_front();
  }
  if (!files_.empty()) {
    const File& file = files_[2 * index + (error ? 1 : 0)];
    return {write_all(file.descriptor.number(), bytes), file.path};
  }
  text_ = prefixes_[index];
  text_ += bytes;
  // Ends an unfinished line, because other ranks may write before the rest arrives.
  if (bytes.back() != '\n') text_ += '\n';
  return {write_all(error ? STDERR_FILENO : STDOUT_FILENO, text_), error ? "stderr" : "stdout"};
}

const std::deque<std::string>& OutputSink::last_errors(int rank) const {
  return last_errors_[static_cast<std::size_t>(rank)];
}

}  // namespace tandem::tools
