#include "core/profile_totals.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <ostream>
#include <span>
#include <string_view>
#include <tuple>
#include <utility>

namespace tandem::profile {
namespace {

using profiler::OperationTotal;

struct EventSums {
  std::int64_t calls = 0, time = 0, inner = 0;  // nanoseconds
};
// By device and name; the empty string is the host.
using SumsByName = std::map<std::pair<std::string_view, std::string_view>, EventSums>;

std::string_view device_of(const Event& event) {
  return event.device ? std::string_view(*event.device) : std::string_view();
}

// `events`: of one thread and device, ordered by begin, longer ones first.
void add_up(SumsByName& sums, const std::vector<const Event*>& events) {
  std::vector<const Event*> around;
  for (const Event* event : events) {
    const std::int64_t time = event->end - event->begin;
    while (!around.empty() && around.back()->end < event->end) around.pop_back();
    if (!around.empty()) sums[{device_of(*event), around.back()->name}].inner += time;
    around.push_back(event);
    EventSums& own = sums[{device_of(*event), event->name}];
    ++own.calls;
    own.time += time;
  }
}

double seconds_of(std::int64_t nanoseconds) { return static_cast<double>(nanoseconds) * 1e-9; }

}  // namespace

std::vector<OperationTotal> totals_of(const TraceContents& contents) {
  std::map<std::pair<int, std::string_view>, std::vector<const Event*>> by_thread;
  for (const ThreadEvents& thread : contents.threads)
    for (std::size_t i = 0; i < thread.count; ++i) {
      const Event& event = thread.events[i];
      by_thread[{thread.thread, device_of(event)}].push_back(&event);
    }
  SumsByName sums;
  for (auto& [thread, events] : by_thread) {
    std::stable_sort(events.begin(), events.end(), [](const Event* a, const Event* b) {
      return std::pair(a->begin, -a->end) < std::pair(b->begin, -b->end);
    });
    add_up(sums, events);
  }
  std::map<std::string_view, std::int64_t> of_device;
  for (const auto& [key, each] : sums) of_device[key.first] += each.time - each.inner;
  std::vector<OperationTotal> totals;
  for (const auto& [key, each] : sums) {
    const std::int64_t self = each.time - each.inner, all = of_device[key.first];
    totals.push_back(
        {.name = std::string(key.second),
         .device = std::string(key.first),
         .calls = each.calls,
         .seconds = seconds_of(each.time),
         .self_seconds = seconds_of(self),
         .share = all > 0 ? static_cast<double>(self) / static_cast<double>(all) : 0.0});
  }
  std::stable_sort(totals.begin(), totals.end(), [](const auto& a, const auto& b) {
    return std::tuple(std::string_view(a.device), -a.self_seconds) <
           std::tuple(std::string_view(b.device), -b.self_seconds);
  });
  return totals;
}

}  // namespace tandem::profile

namespace tandem::profiler {
namespace {

std::string row_of(const OperationTotal& total) {
  return fmt::format("{:<44}{:>10}{:>14.3f}{:>14.4f}{:>14.3f}{:>8.1f}%\n", total.name, total.calls,
                     total.seconds * 1e3, total.mean_seconds() * 1e3, total.self_seconds * 1e3,
                     total.share * 100.0);
}

// EventSums up several rows.
OperationTotal rest_of(std::span<const OperationTotal> totals) {
  OperationTotal rest{.name = fmt::format("{} others", totals.size())};
  for (const OperationTotal& total : totals) {
    rest.calls += total.calls;
    rest.seconds += total.seconds;
    rest.self_seconds += total.self_seconds;
    rest.share += total.share;
  }
  return rest;
}

}  // namespace

std::string Summary::to_string(std::size_t most) const {
  std::string text;
  for (auto first = totals.begin(); first != totals.end();) {
    const auto end = std::find_if(first, totals.end(),
                                  [&](const auto& each) { return each.device != first->device; });
    text += fmt::format("{}{:<44}{:>10}{:>14}{:>14}{:>14}{:>9}\n", text.empty() ? "" : "\n",
                        first->device.empty() ? "host" : first->device, "calls", "total ms",
                        "mean ms", "self ms", "share");
    const auto shown =
        first + std::min<std::ptrdiff_t>(end - first, static_cast<std::ptrdiff_t>(most));
    for (auto at = first; at != shown; ++at) text += row_of(*at);
    if (shown != end) text += row_of(rest_of({shown, end}));
    first = end;
  }
  return text;
}

std::ostream& operator<<(std::ostream& out, const Summary& summary) {
  return out << summary.to_string();
}

}  // namespace tandem::profiler
