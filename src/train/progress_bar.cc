#include "train/progress_bar.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <utility>

#include "core/env.h"
#include "core/status.h"

namespace tandem {
namespace {

constexpr std::int64_t kBarWidth = 30;
constexpr std::chrono::seconds kLineEvery{10};

// The width of the terminal on stderr. Read for each line, since it may have been resized.
std::size_t terminal_columns() {
  winsize size = {};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  constexpr std::size_t kUsual = 80;
  const std::string text = env_string("COLUMNS").value_or("");
  std::size_t columns = 0;
  std::from_chars(text.data(), text.data() + text.size(), columns);
  return columns > 0 ? columns : kUsual;
}

// The number of columns of UTF-8 text.
std::size_t columns_of(const std::string& text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  }));
}

std::string bar(std::int64_t done, std::int64_t total) {
  const std::int64_t filled = total > 0 ? std::min(done, total) * kBarWidth / total : kBarWidth;
  std::string text(static_cast<std::size_t>(kBarWidth), '.');
  std::fill_n(text.begin(), filled, '=');
  if (filled < kBarWidth) text[static_cast<std::size_t>(filled)] = '>';
  return fmt::format("[{}]", text);
}

std::string duration(double seconds) {
  const auto whole = static_cast<std::int64_t>(std::lround(seconds));
  if (whole >= 3600)
    return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
  if (whole >= 60) return fmt::format("{}:{:02}", whole / 60, whole % 60);
  return fmt::format("{}s", whole);
}

std::string step_time(double seconds) {
  if (seconds >= 1.0) return fmt::format("{:.0f}s/step", seconds);
  if (seconds >= 1e-3) return fmt::format("{:.0f}ms/step", seconds * 1e3);
  return fmt::format("{:.0f}us/step", seconds * 1e6);
}

// "loss: 0.3521", "accuracy: 0.8912", "val_loss: ...": training's metrics first.
std::vector<std::string> metric_strings(const callbacks::Logs& logs) {
  std::vector<std::string> strings, validation;
  const auto append = [](std::vector<std::string>& to, const std::string& name, double value) {
    const bool tiny = value != 0.0 && std::abs(value) < 1e-3;
    to.push_back(tiny ? fmt::format("{}: {:.4e}", name, value)
                      : fmt::format("{}: {:.4f}", name, value));
  };
  if (const auto loss = logs.find("loss"); loss != logs.end())
    append(strings, "loss", loss->second);
  if (const auto loss = logs.find("val_loss"); loss != logs.end())
    append(validation, "val_loss", loss->second);
  for (const auto& [name, value] : logs)
    if (name != "loss" && name != "val_loss")
      append(name.starts_with("val_") ? validation : strings, name, value);
  strings.insert(strings.end(), validation.begin(), validation.end());
  return strings;
}

std::string joined(const ProgressLine& line) {
  std::string text = line.counter;
  const auto append = [&](const char* separator, const std::string& part) {
    if (!part.empty()) text += (text.empty() ? "" : separator) + part;
  };
  append(" ", line.bar);
  for (const std::string* part : {&line.time, &line.step_time, &line.rate}) append(" - ", *part);
  for (const std::string& metric : line.metrics) append(" - ", metric);
  return text;
}

// Shortens the line to `columns`: drops the speed first, loss and metrics last.
std::string fitted(ProgressLine line, std::size_t columns) {
  const auto fits = [&] { return columns_of(joined(line)) <= columns; };
  for (std::string* part : {&line.rate, &line.step_time, &line.bar, &line.time, &line.counter})
    if (!fits()) part->clear();
  while (!fits()) line.metrics.pop_back();
  return joined(line);
}

// Breaks the line so that all metrics are printed.
std::string folded(ProgressLine line, std::size_t columns) {
  const std::vector<std::string> metrics = std::exchange(line.metrics, {});
  for (std::string* part : {&line.rate, &line.step_time, &line.bar}) {
    line.metrics = metrics;
    if (columns_of(joined(line)) <= columns) return joined(line);
    part->clear();
  }
  line.metrics.clear();
  std::string text = fitted(line, columns);
  std::size_t used = columns_of(text);
  for (const std::string& metric : metrics) {
    const std::size_t more = columns_of(metric) + 3;
    const bool fits = used + more <= columns;
    text += (fits ? " - " : "\n") + metric;
    used = fits ? used + more : more - 3;
  }
  return text;
}

}  // namespace

ProgressBar::ProgressBar(int verbose, std::chrono::milliseconds interval)
    : verbose_(verbose), terminal_(isatty(STDERR_FILENO) == 1), interval_(interval) {}

ProgressBar::~ProgressBar() {
  if (line_open_) std::fputc('\n', stderr);
}

void ProgressBar::begin(std::string title, std::optional<std::int64_t> total, std::int64_t done) {
  title_ = std::move(title);
  total_ = total;
  first_ = done_ = done;
  examples_ = 0;
  start_ = written_ = Clock::now();
  if (updates_in_place() && !title_.empty()) std::fprintf(stderr, "%s\n", title_.c_str());
}

void ProgressBar::add_speed(ProgressLine& line, double seconds) const {
  const std::int64_t steps = done_ - first_;
  if (steps == 0 || seconds <= 0.0) return;
  line.step_time = step_time(seconds / static_cast<double>(steps));
  line.rate = fmt::format("{:.0f} samples/s", static_cast<double>(examples_) / seconds);
}

void ProgressBar::step(std::int64_t done, std::int64_t examples, const MetricsFunction& metrics) {
  done_ = done;
  examples_ += examples;
  if (verbose_ != 1) return;
  const Clock::time_point now = Clock::now();
  if (now - written_ < (terminal_ ? Clock::duration(interval_) : Clock::duration(kLineEvery)))
    return;
  written_ = now;
  const double seconds = std::chrono::duration<double>(now - start_).count();
  const std::string total = total_ ? std::to_string(*total_) : "Unknown";
  ProgressLine line;
  line.counter = fmt::format("{:>{}}/{}", done_, total_ ? total.size() : 1, total);
  if (total_) {
    if (terminal_) line.bar = bar(done_, *total_);
    const double each = seconds / static_cast<double>(done_ - first_);
    line.time = fmt::format(
        "ETA: {}",
        duration(each * static_cast<double>(std::max<std::int64_t>(*total_ - done_, 0))));
  }
  add_speed(line, seconds);
  line.metrics = metric_strings(metrics());
  write(std::move(line), false);
}

void ProgressBar::end(const callbacks::Logs& logs) {
  if (verbose_ == 0) return;
  const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
  ProgressLine line;
  line.counter = fmt::format("{}/{}", done_, done_);
  if (updates_in_place()) line.bar = bar(1, 1);
  line.time = duration(seconds);
  add_speed(line, seconds);
  line.metrics = metric_strings(logs);
  write(std::move(line), true);
}

void ProgressBar::write(ProgressLine line, bool last) {
  if (updates_in_place()) {
    // The last column stays free, since terminals differ in where the cursor is after it.
    const std::size_t columns = std::max<std::size_t>(terminal_columns(), 2) - 1;
    const std::string text =
        last ? folded(std::move(line), columns) : fitted(std::move(line), columns);
    std::fprintf(stderr, "\r\x1b[K%s%s", text.c_str(), last ? "\n" : "");
    line_open_ = !last;
  } else {
    std::fprintf(stderr, "%s%s%s\n", title_.c_str(), title_.empty() ? "" : " - ",
                 joined(line).c_str());
  }
  std::fflush(stderr);
}

}  // namespace tandem
