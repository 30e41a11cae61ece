// Reads profiles that a test has written.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "support/files.h"

namespace tandem::testing {

struct TraceEvent {
  std::string process, row, name, category;
  double begin = 0.0, end = 0.0;  // microseconds
  nlohmann::json args;
};

// The complete events of a trace file, with the names of their rows. Expects a valid file with
// unique row names, in which the events of each row are nested.
inline std::vector<TraceEvent> read_trace(const std::filesystem::path& path) {
  using nlohmann::json;
  const json trace = json::parse(read_file(path));
  std::map<int, std::string> processes;
  std::map<std::pair<int, int>, std::string> rows;
  for (const json& event : trace.at("traceEvents")) {
    if (event.at("ph") != "M") continue;
    const int process = event.at("pid"), row = event.at("tid");
    if (event.at("name") == "process_name") processes[process] = event.at("args").at("name");
    if (event.at("name") == "thread_name") rows[{process, row}] = event.at("args").at("name");
  }
  std::vector<TraceEvent> events;
  for (const json& event : trace.at("traceEvents")) {
    if (event.at("ph") == "M") continue;
    EXPECT_EQ(event.at("ph"), "X");
    const double begin = event.at("ts"), duration = event.at("dur");
    EXPECT_GE(duration, 0.0);
    events.push_back({processes.at(event.at("pid")), rows.at({event.at("pid"), event.at("tid")}),
                      event.at("name"), event.at("cat"), begin, begin + duration,
                      event.at("args")});
  }
  std::map<std::pair<std::string, std::string>, std::vector<const TraceEvent*>> by_row;
  for (const TraceEvent& event : events) by_row[{event.process, event.row}].push_back(&event);
  EXPECT_EQ(by_row.size(), rows.size());
  constexpr double kRounding = 0.01;  // nanoseconds are stored as fractions of microseconds
  for (const auto& [row, of_row] : by_row)
    for (std::size_t i = 0; i < of_row.size(); ++i)
      for (std::size_t j = 0; j < i; ++j) {
        const TraceEvent &a = *of_row[i], &b = *of_row[j];
        const bool apart = a.end <= b.begin + kRounding || b.end <= a.begin + kRounding;
        const bool a_in_b = b.begin <= a.begin + kRounding && a.end <= b.end + kRounding;
        const bool b_in_a = a.begin <= b.begin + kRounding && b.end <= a.end + kRounding;
        EXPECT_TRUE(apart || a_in_b || b_in_a)
            << a.name << " and " << b.name << " cross in row " << row.second;
      }
  return events;
}

// Events with a name, in a process and row; empty strings match any.
inline std::vector<TraceEvent> select(const std::vector<TraceEvent>& events,
                                      const std::string& name, const std::string& process = {},
                                      const std::string& row = {}) {
  std::vector<TraceEvent> found;
  for (const TraceEvent& event : events)
    if (event.name == name && (process.empty() || event.process == process) &&
        (row.empty() || event.row == row))
      found.push_back(event);
  return found;
}

}  // namespace tandem::testing
