#include "core/trace_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include "core/json.h"

namespace tandem::profile {
namespace {

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

// The roles that rows show, in display order.
struct ThreadRole {
  std::string_view device;  // empty for the host
  Lane lane;
  int replica;
  friend bool operator<(const ThreadRole& a, const ThreadRole& b) {
    return std::tie(a.device, a.lane, a.replica) < std::tie(b.device, b.lane, b.replica);
  }
};

ThreadRole role_of(const Event& event) {
  return {event.device ? std::string_view(*event.device) : std::string_view(), event.lane,
          event.replica};
}

// The time during which a thread had a role: from the begin of its first event to the end of its
// last.
struct Period {
  std::int64_t begin = INT64_MAX, end = INT64_MIN;
  int place = 0;  // index among the rows of the role
};

// By role and thread.
using Periods = std::map<ThreadRole, std::map<int, Period>>;

Periods periods_of(const TraceContents& contents) {
  Periods periods;
  for (const ThreadEvents& thread : contents.threads)
    for (std::size_t i = 0; i < thread.count; ++i) {
      const Event& event = thread.events[i];
      Period& period = periods[role_of(event)][thread.thread];
      period.begin = std::min(period.begin, event.begin);
      period.end = std::max(period.end, event.end);
    }
  return periods;
}

// Assigns each thread the first row that is free during its period. Returns the number of rows.
int assign_places(std::map<int, Period>& threads) {
  std::vector<Period*> in_order;
  for (auto& [thread, period] : threads) in_order.push_back(&period);
  std::stable_sort(in_order.begin(), in_order.end(),
                   [](const Period* a, const Period* b) { return a->begin < b->begin; });
  std::vector<std::int64_t> taken_until;
  for (Period* period : in_order) {
    const auto free = std::find_if(taken_until.begin(), taken_until.end(),
                                   [&](std::int64_t until) { return until <= period->begin; });
    period->place = static_cast<int>(free - taken_until.begin());
    if (free == taken_until.end()) taken_until.emplace_back();
    taken_until[static_cast<std::size_t>(period->place)] = period->end;
  }
  return static_cast<int>(taken_until.size());
}

struct TraceRow {
  int process = 0;
  int number = 0;
};

std::string label_of(const ThreadRole& role, int place) {
  std::string label = name_of(role.lane).row;
  if (role.replica >= 0) label += fmt::format(", replica {}", role.replica);
  if (place > 0) label += fmt::format(" ({})", place + 1);
  return label;
}

// The file's contents, one event per line.
class Lines {
 public:
  explicit Lines(AtomicFile& out) : out_(out) {}
  void text(const std::string& text) {
    constexpr std::size_t kMost = 64 * 1024;
    text_ += text;
    if (text_.size() > kMost) flush();
  }
  void flush() {
    out_.write(text_.data(), text_.size());
    text_.clear();
  }
  void add(const Json& event) {
    text(first_ ? "\n" : ",\n");
    text(event.dump());
    first_ = false;
  }
  void name(const char* what, const TraceRow& row, const std::string& name) {
    add({{"name", what},
         {"ph", "M"},
         {"pid", row.process},
         {"tid", row.number},
         {"args", {{"name", name}}}});
  }
  void sort(const char* what, const TraceRow& row, int index) {
    add({{"name", what},
         {"ph", "M"},
         {"pid", row.process},
         {"tid", row.number},
         {"args", {{"sort_index", index}}}});
  }

 private:
  AtomicFile& out_;
  std::string text_;
  bool first_ = true;
};

void write_event(Lines& lines, const Event& event, const TraceRow& row, std::int64_t start) {
  const auto microseconds = [](std::int64_t ns) { return static_cast<double>(ns) / 1000.0; };
  Json args = Json::Object();
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

// Names the rows of each role.
std::map<ThreadRole, std::vector<TraceRow>> write_rows(Lines& lines, Periods& periods) {
  std::map<ThreadRole, std::vector<TraceRow>> rows;
  std::map<std::string_view, int> processes;
  int number = 0;
  for (auto& [role, threads] : periods) {
    const auto [process, added] =
        processes.try_emplace(role.device, static_cast<int>(processes.size()) + 1);
    const int places = assign_places(threads);
    for (int place = 0; place < places; ++place) {
      const TraceRow row = {process->second, ++number};
      if (added && place == 0) {
        lines.name("process_name", row, role.device.empty() ? "host" : std::string(role.device));
        lines.sort("process_sort_index", row, row.process);
      }
      lines.name("thread_name", row, label_of(role, place));
      lines.sort("thread_sort_index", row, row.number);
      rows[role].push_back(row);
    }
  }
  return rows;
}

}  // namespace

void write_trace(AtomicFile& out, const TraceContents& contents) {
  Periods periods = periods_of(contents);
  Lines lines(out);
  lines.text(
      fmt::format(R"({{"displayTimeUnit":"ms","otherData":{{"dropped_events":{}}},"traceEvents":[)",
                  contents.dropped));
  const auto rows = write_rows(lines, periods);
  for (const ThreadEvents& thread : contents.threads)
    for (std::size_t i = 0; i < thread.count; ++i) {
      const Event& event = thread.events[i];
      const ThreadRole role = role_of(event);
      const int place = periods.at(role).at(thread.thread).place;
      write_event(lines, event, rows.at(role)[static_cast<std::size_t>(place)], contents.start);
    }
  lines.text("\n]}\n");
  lines.flush();
}

}  // namespace tandem::profile
