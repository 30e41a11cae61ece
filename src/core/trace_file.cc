#include "core/trace_file.h"

#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

namespace tandem::profile {
namespace {

using json = nlohmann::ordered_json;

struct LaneName {
  const char* category;
  const char* row;
};
// In the order of Lane.
constexpr LaneName kLanes[] = {{"step", "steps"},
                               {"data", "data"},
                               {"host", "host"},
                               {"kernel", "stream"},
                               {"copy", "copies"},
                               {"copy", "copies ahead"},
                               {"collective", "collectives"}};

LaneName name_of(Lane lane) { return kLanes[static_cast<int>(lane)]; }

// In the order in which they are shown.
struct RowKey {
  std::string device;  // empty: the host
  Lane lane;
  int replica;
  int thread;
  friend bool operator<(const RowKey& a, const RowKey& b) {
    return std::tie(a.device, a.lane, a.replica, a.thread) <
           std::tie(b.device, b.lane, b.replica, b.thread);
  }
};

struct Row {
  int process = 0;
  int number = 0;
};

RowKey key_of(const Event& event, int thread) {
  return {event.device ? *event.device : std::string(), event.lane, event.replica, thread};
}

std::string label_of(const RowKey& key) {
  return key.replica < 0 ? std::string(name_of(key.lane).row)
                         : fmt::format("{}, replica {}", name_of(key.lane).row, key.replica);
}

// The file's events, one a line.
class Lines {
 public:
  explicit Lines(std::ostream& out) : out_(out) {}
  void add(const json& event) {
    out_ << (first_ ? "\n" : ",\n") << event.dump(-1, ' ', false, json::error_handler_t::replace);
    first_ = false;
  }
  void name(const char* what, const Row& row, const std::string& name) {
    add({{"name", what},
         {"ph", "M"},
         {"pid", row.process},
         {"tid", row.number},
         {"args", {{"name", name}}}});
  }
  void sort(const char* what, const Row& row, int index) {
    add({{"name", what},
         {"ph", "M"},
         {"pid", row.process},
         {"tid", row.number},
         {"args", {{"sort_index", index}}}});
  }

 private:
  std::ostream& out_;
  bool first_ = true;
};

void write_event(Lines& lines, const Event& event, const Row& row, std::int64_t start) {
  const auto microseconds = [](std::int64_t ns) { return static_cast<double>(ns) / 1000.0; };
  json args = json::object();
  if (!event.node.empty()) args["node"] = event.node;
  if (!event.shapes.empty()) args["shapes"] = event.shapes;
  if (event.bytes >= 0) args["bytes"] = event.bytes;
  if (event.replica >= 0) args["replica"] = event.replica;
  lines.add({{"name", event.name},
             {"cat", name_of(event.lane).category},
             {"ph", "X"},
             {"ts", microseconds(event.begin - start)},
             {"dur", microseconds(event.end - event.begin)},
             {"pid", row.process},
             {"tid", row.number},
             {"args", std::move(args)}});
}

}  // namespace

void write_trace(std::ostream& out, const TraceContents& contents) {
  std::map<RowKey, Row> rows;
  for (const ThreadEvents& thread : contents.threads)
    for (std::size_t i = 0; i < thread.count; ++i)
      rows.try_emplace(key_of(thread.events[i], thread.thread));

  out << R"({"displayTimeUnit":"ms","otherData":{"dropped_events":)" << contents.dropped
      << R"(},"traceEvents":[)";
  Lines lines(out);
  std::map<std::string, int> processes;
  std::set<std::pair<int, std::string>> labels;
  int number = 0;
  for (auto& [key, row] : rows) {
    const auto [process, added] =
        processes.try_emplace(key.device, static_cast<int>(processes.size()) + 1);
    row = {process->second, ++number};
    if (added) {
      lines.name("process_name", row, key.device.empty() ? "host" : key.device);
      lines.sort("process_sort_index", row, row.process);
    }
    std::string label = label_of(key);
    for (int next = 2; !labels.emplace(row.process, label).second; ++next)
      label = fmt::format("{} ({})", label_of(key), next);
    lines.name("thread_name", row, label);
    lines.sort("thread_sort_index", row, row.number);
  }
  for (const ThreadEvents& thread : contents.threads)
    for (std::size_t i = 0; i < thread.count; ++i) {
      const Event& event = thread.events[i];
      write_event(lines, event, rows.at(key_of(event, thread.thread)), contents.start);
    }
  out << "\n]}\n";
}

}  // namespace tandem::profile
