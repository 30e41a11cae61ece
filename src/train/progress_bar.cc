#include "train/progress_bar.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "core/status.h"

namespace tandem {
namespace {

constexpr std::int64_t kBarWidth = 30;
constexpr std::chrono::milliseconds kRedraw{100};
constexpr std::chrono::seconds kLineEvery{10};

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

// " - loss: 0.3521 - accuracy: 0.8912 - val_loss: ...": training's figures first.
std::string figures_text(const callbacks::Logs& logs) {
  std::string text, validation;
  const auto append = [](std::string& to, const std::string& name, double value) {
    const bool tiny = value != 0.0 && std::abs(value) < 1e-3;
    to += tiny ? fmt::format(" - {}: {:.4e}", name, value)
               : fmt::format(" - {}: {:.4f}", name, value);
  };
  if (const auto loss = logs.find("loss"); loss != logs.end()) append(text, "loss", loss->second);
  if (const auto loss = logs.find("val_loss"); loss != logs.end())
    append(validation, "val_loss", loss->second);
  for (const auto& [name, value] : logs)
    if (name != "loss" && name != "val_loss")
      append(name.starts_with("val_") ? validation : text, name, value);
  return text + validation;
}

}  // namespace

ProgressBar::ProgressBar(int verbose) : verbose_(verbose), terminal_(isatty(STDERR_FILENO) == 1) {}

ProgressBar::~ProgressBar() {
  if (drawn_ > 0) std::fputc('\n', stderr);
}

void ProgressBar::begin(std::string title, std::optional<std::int64_t> total, std::int64_t done) {
  title_ = std::move(title);
  total_ = total;
  first_ = done_ = done;
  examples_ = 0;
  start_ = written_ = Clock::now();
  if (verbose_ == 1 && terminal_ && !title_.empty()) std::fprintf(stderr, "%s\n", title_.c_str());
}

std::string ProgressBar::rate(double seconds) const {
  const std::int64_t steps = done_ - first_;
  if (steps == 0 || seconds <= 0.0) return {};
  return fmt::format(" - {} - {:.0f} samples/s", step_time(seconds / static_cast<double>(steps)),
                     static_cast<double>(examples_) / seconds);
}

void ProgressBar::step(std::int64_t done, std::int64_t examples, const Figures& figures) {
  done_ = done;
  examples_ += examples;
  if (verbose_ != 1) return;
  const Clock::time_point now = Clock::now();
  if (now - written_ < (terminal_ ? Clock::duration(kRedraw) : Clock::duration(kLineEvery))) return;
  written_ = now;
  const double seconds = std::chrono::duration<double>(now - start_).count();
  const std::string total = total_ ? std::to_string(*total_) : "Unknown";
  std::string line = fmt::format("{:>{}}/{}", done_, total_ ? total.size() : 1, total);
  if (total_) {
    if (terminal_) line += fmt::format(" {}", bar(done_, *total_));
    const double each = seconds / static_cast<double>(done_ - first_);
    line += fmt::format(
        " - ETA: {}",
        duration(each * static_cast<double>(std::max<std::int64_t>(*total_ - done_, 0))));
  }
  write(line + rate(seconds) + figures_text(figures()), false);
}

void ProgressBar::end(const callbacks::Logs& logs) {
  if (verbose_ == 0) return;
  const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
  std::string line = fmt::format("{}/{}", done_, done_);
  if (verbose_ == 1 && terminal_) line += fmt::format(" {}", bar(1, 1));
  write(fmt::format("{} - {}{}{}", line, duration(seconds), rate(seconds), figures_text(logs)),
        true);
}

void ProgressBar::write(const std::string& line, bool last) {
  if (verbose_ == 1 && terminal_) {
    const std::size_t stale = drawn_ > line.size() ? drawn_ - line.size() : 0;
    std::fprintf(stderr, "\r%s%s%s", line.c_str(), std::string(stale, ' ').c_str(),
                 last ? "\n" : "");
    drawn_ = last ? 0 : line.size();
  } else {
    std::fprintf(stderr, "%s%s%s\n", title_.c_str(), title_.empty() ? "" : " - ", line.c_str());
  }
  std::fflush(stderr);
}

}  // namespace tandem
