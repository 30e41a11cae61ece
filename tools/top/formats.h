// The output of `tandem top`: a table, lines or Prometheus' text format.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tandem/cluster_status.h"

namespace tandem::tools {

// The rates of a task, per second, between two answers.
struct TaskRates {
  double closures = 0, pulls = 0, pushes = 0, updates = 0, bytes_in = 0, bytes_out = 0;
  std::optional<double> staleness;  // mean of the updates in between; empty: there were none
};

struct TaskView {
  distribute::TaskStatus status;
  std::optional<TaskRates> rates;  // empty: an answer is missing, or the task has restarted
};

// `before` may be empty, else it has the tasks of `now`.
std::vector<TaskView> views_of(const std::vector<distribute::TaskStatus>& before,
                               std::vector<distribute::TaskStatus> now);

// One line of key=value per task. Unknown numbers are "-". The reason is last, in quotes.
// `seconds`: since 1970.
std::string lines_of(const std::vector<TaskView>& views, double seconds);
// One row per task below a heading, and a row for each reason.
std::string table_of(const std::vector<TaskView>& views);
// Counters and gauges with the labels job (the type) and task (the index). A task that has not
// answered has a state alone.
std::string prometheus_of(const std::vector<TaskView>& views);

}  // namespace tandem::tools
