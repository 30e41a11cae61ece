#include "top/formats.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>

namespace tandem::tools {
namespace {

using distribute::TaskState;
using distribute::TaskStatus;

constexpr const char* kUnknown = "-";

// With a backslash before `"` and `\`, and newlines as `\n`: as labels of Prometheus.
std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    if (c == '\n')
      result += "\\n";
    else
      result += c;
  }
  return result;
}

std::string name_of_task(const TaskStatus& status) {
  return fmt::format("{}:{}", status.type, status.index);
}

std::optional<TaskRates> rates_of(const TaskStatus& before, const TaskStatus& now) {
  const double seconds = std::chrono::duration<double>(now.time - before.time).count();
  if (!before.answered || !now.answered || before.incarnation != now.incarnation || seconds <= 0)
    return {};
  const auto rate = [&](std::uint64_t TaskStatus::*counter) {
    return static_cast<double>(now.*counter - before.*counter) / seconds;
  };
  TaskRates rates{.closures = rate(&TaskStatus::closures),
                  .pulls = rate(&TaskStatus::pulls),
                  .pushes = rate(&TaskStatus::pushes),
                  .updates = rate(&TaskStatus::updates),
                  .bytes_in = rate(&TaskStatus::bytes_in),
                  .bytes_out = rate(&TaskStatus::bytes_out),
                  .staleness = {}};
  if (rates.updates > 0) rates.staleness = rate(&TaskStatus::staleness_sum) / rates.updates;
  return rates;
}

std::string rate_text(const TaskView& view, double TaskRates::*rate) {
  return view.rates ? fmt::format("{:.1f}", *view.rates.*rate) : kUnknown;
}

std::string mean_staleness(const TaskView& view) {
  const bool known = view.rates && view.rates->staleness;
  return known ? fmt::format("{:.2f}", *view.rates->staleness) : kUnknown;
}

std::string counter_text(const TaskView& view, std::uint64_t TaskStatus::*counter) {
  return view.status.answered ? std::to_string(view.status.*counter) : kUnknown;
}

// "12.5 MiB"
std::string size_text(double bytes) {
  constexpr std::array kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  for (; bytes >= 1024 && unit + 1 < kUnits.size(); ++unit) bytes /= 1024;
  return fmt::format("{:.{}f} {}", bytes, unit == 0 ? 0 : 1, kUnits[unit]);
}

using Row = std::array<std::string, 10>;

Row row_of(const TaskView& view) {
  const bool worker = view.status.type == "worker", server = view.status.type == "ps";
  const auto if_known = [](bool known, std::string text) { return known ? text : kUnknown; };
  const auto size_rate = [&](double TaskRates::*rate) {
    return view.rates ? size_text(*view.rates.*rate) : kUnknown;
  };
  return {name_of_task(view.status),
          name_of(view.status.state),
          if_known(worker, rate_text(view, &TaskRates::closures)),
          if_known(server, rate_text(view, &TaskRates::updates)),
          if_known(server, rate_text(view, &TaskRates::pushes)),
          if_known(server, mean_staleness(view)),
          if_known(server, counter_text(view, &TaskStatus::staleness_max)),
          size_rate(&TaskRates::bytes_in),
          size_rate(&TaskRates::bytes_out),
          if_known(server && view.status.answered,
                   size_text(static_cast<double>(view.status.variable_bytes)))};
}

struct Metric {
  const char* name;
  const char* type;
  const char* help;
  const char* role;  // the type of the tasks that have it; empty: all that answer
  std::uint64_t TaskStatus::*value;
};

constexpr std::array kMetrics = {
    Metric{"tandem_task_received_bytes_total", "counter", "Bytes that the task has received.", "",
           &TaskStatus::bytes_in},
    Metric{"tandem_task_sent_bytes_total", "counter", "Bytes that the task has sent.", "",
           &TaskStatus::bytes_out},
    Metric{"tandem_worker_closures_total", "counter", "Closures that the worker has run.", "worker",
           &TaskStatus::closures},
    Metric{"tandem_server_pulls_total", "counter", "Calls that read variables.", "ps",
           &TaskStatus::pulls},
    Metric{"tandem_server_pushes_total", "counter", "Calls that update variables.", "ps",
           &TaskStatus::pushes},
    Metric{"tandem_server_updates_total", "counter", "Updates that the server has accepted.", "ps",
           &TaskStatus::updates},
    Metric{"tandem_server_staleness_total", "counter",
           "Staleness of the updates, summed: writes of the variable since it was read.", "ps",
           &TaskStatus::staleness_sum},
    Metric{"tandem_server_staleness_max", "gauge", "Largest staleness of an update.", "ps",
           &TaskStatus::staleness_max},
    Metric{"tandem_server_variables", "gauge", "Variables of the server.", "ps",
           &TaskStatus::variables},
    Metric{"tandem_server_variable_bytes", "gauge", "Memory of the variables.", "ps",
           &TaskStatus::variable_bytes},
};

std::string labels_of(const TaskStatus& status) {
  return fmt::format("job=\"{}\",task=\"{}\"", escaped(status.type), status.index);
}

}  // namespace

std::vector<TaskView> views_of(const std::vector<TaskStatus>& before, std::vector<TaskStatus> now) {
  std::vector<TaskView> views;
  for (TaskStatus& status : now) {
    const std::size_t i = views.size();
    std::optional<TaskRates> rates;
    if (i < before.size()) rates = rates_of(before[i], status);
    views.push_back({std::move(status), rates});
  }
  return views;
}

std::string lines_of(const std::vector<TaskView>& views, double seconds) {
  std::string text;
  for (const TaskView& view : views) {
    const auto rate = [&](double TaskRates::*member) { return rate_text(view, member); };
    const auto counter = [&](std::uint64_t TaskStatus::*member) {
      return counter_text(view, member);
    };
    text += fmt::format(
        "time={:.3f} task={} address={} state={} closures={} closures_per_s={} updates={} "
        "updates_per_s={} pushes_per_s={} pulls_per_s={} staleness_mean={} staleness_max={} "
        "bytes_in_per_s={} bytes_out_per_s={} variable_bytes={} reason=\"{}\"\n",
        seconds, name_of_task(view.status), view.status.address, name_of(view.status.state),
        counter(&TaskStatus::closures), rate(&TaskRates::closures), counter(&TaskStatus::updates),
        rate(&TaskRates::updates), rate(&TaskRates::pushes), rate(&TaskRates::pulls),
        mean_staleness(view), counter(&TaskStatus::staleness_max), rate(&TaskRates::bytes_in),
        rate(&TaskRates::bytes_out), counter(&TaskStatus::variable_bytes),
        escaped(view.status.reason));
  }
  return text;
}

std::string table_of(const std::vector<TaskView>& views) {
  std::vector<Row> rows = {{"task", "state", "closures/s", "updates/s", "pushes/s", "staleness",
                            "max", "in/s", "out/s", "variables"}};
  for (const TaskView& view : views) rows.push_back(row_of(view));
  std::array<std::size_t, std::tuple_size_v<Row>> widths{};
  for (const Row& row : rows)
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  std::string text;
  for (const Row& row : rows) {
    text += fmt::format("{:<{}}  {:<{}}", row[0], widths[0], row[1], widths[1]);
    for (std::size_t i = 2; i < row.size(); ++i) text += fmt::format("  {:>{}}", row[i], widths[i]);
    text += '\n';
  }
  for (const TaskView& view : views)
    if (!view.status.reason.empty())
      text += fmt::format("{} is {}: {}\n", name_of_task(view.status), name_of(view.status.state),
                          view.status.reason);
  return text;
}

std::string prometheus_of(const std::vector<TaskView>& views) {
  std::string text =
      "# HELP tandem_task_state Whether the task is in the state.\n"
      "# TYPE tandem_task_state gauge\n";
  for (const TaskView& view : views)
    for (const TaskState state :
         {TaskState::kReady, TaskState::kBusy, TaskState::kLate, TaskState::kGone})
      text += fmt::format("tandem_task_state{{{},state=\"{}\"}} {}\n", labels_of(view.status),
                          name_of(state), view.status.state == state ? 1 : 0);
  for (const Metric& metric : kMetrics) {
    text += fmt::format("# HELP {0} {1}\n# TYPE {0} {2}\n", metric.name, metric.help, metric.type);
    const std::string role = metric.role;
    for (const TaskView& view : views)
      if (view.status.answered && (role.empty() || role == view.status.type))
        text += fmt::format("{}{{{}}} {}\n", metric.name, labels_of(view.status),
                            view.status.*metric.value);
  }
  return text;
}

}  // namespace tandem::tools
