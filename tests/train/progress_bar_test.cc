#include "train/progress_bar.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <chrono>
#include <thread>

namespace tandem::progress_bar_test {
namespace {

// Makes stderr a terminal while it lives.
class Terminal {
 public:
  explicit Terminal(unsigned short columns = 200) : saved_(dup(STDERR_FILENO)) {
    int slave = -1;
    const winsize size = size_of(columns);
    if (openpty(&master_, &slave, nullptr, nullptr, &size) != 0) return;
    dup2(slave, STDERR_FILENO);
    close(slave);
  }
  ~Terminal() {
    dup2(saved_, STDERR_FILENO);
    close(saved_);
    close(master_);
  }
  bool works() const { return master_ >= 0; }
  void resize(unsigned short columns) const {
    const winsize size = size_of(columns);
    ioctl(master_, TIOCSWINSZ, &size);
  }
  // The output since the last call. The terminal writes "\r\n" for "\n".
  std::string text() const {
    std::string all, part(4096, '\0');
    pollfd ready{master_, POLLIN, 0};
    while (poll(&ready, 1, 200) == 1) {
      const ssize_t count = read(master_, part.data(), part.size());
      if (count <= 0) break;
      all.append(part, 0, static_cast<std::size_t>(count));
    }
    return all;
  }

 private:
  static winsize size_of(unsigned short columns) {
    return {.ws_row = 24, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
  }

  int saved_, master_ = -1;
};

// The lines that a terminal with `columns` columns shows after printing `text`.
std::vector<std::string> shown(const std::string& text, std::size_t columns) {
  std::vector<std::string> lines(1);
  std::size_t at = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    std::string& line = lines.back();
    if (text[i] == '\r') {
      at = 0;
    } else if (text[i] == '\n') {
      lines.emplace_back();
    } else if (text.compare(i, 3, "\x1b[K") == 0) {
      line.resize(at);
      i += 2;
    } else {
      if (at == columns) {
        lines.emplace_back();
        at = 0;
      }
      lines.back().resize(std::max(lines.back().size(), at + 1), ' ');
      lines.back()[at++] = text[i];
    }
  }
  return lines;
}

callbacks::Logs logs_of_training() { return {{"loss", 0.3521}, {"accuracy", 0.8912}}; }

constexpr std::chrono::milliseconds kInterval{100};

void wait_for_interval() { std::this_thread::sleep_for(kInterval); }

TEST(ProgressBar, UpdatesOneLineOnATerminal) {
  const Terminal terminal;
  ASSERT_TRUE(terminal.works());
  {
    ProgressBar bar(1);
    const auto begin = std::chrono::steady_clock::now();
    bar.begin("Epoch 1/2", 300, 0);
    int read = 0;
    const auto metrics = [&] {
      ++read;
      return callbacks::Logs{{"accuracy", 0.5}, {"loss", 0.00012}};
    };
    for (int step = 1; step <= 99; ++step) bar.step(step, 8, metrics);
    const auto updates = (std::chrono::steady_clock::now() - begin) / kInterval;
    EXPECT_LE(read, 1 + updates) << "quick steps do not all print a line";
    wait_for_interval();
    bar.step(100, 8, metrics);
    bar.end({{"loss", 0.25}, {"accuracy", 0.75}, {"val_loss", 0.5}});
  }
  const std::string text = terminal.text();
  EXPECT_EQ(text.substr(0, 11), "Epoch 1/2\r\n");
  EXPECT_NE(text.find("\r\x1b[K100/300 [==========>...................] - ETA: "),
            std::string::npos)
      << text;
  EXPECT_NE(text.find(" - loss: 1.2000e-04 - accuracy: 0.5000"), std::string::npos) << text;
  EXPECT_NE(text.find("100/100 [==============================] - "), std::string::npos) << text;
  EXPECT_NE(text.find(" - loss: 0.2500 - accuracy: 0.7500 - val_loss: 0.5000"), std::string::npos)
      << text;
  EXPECT_EQ(text.substr(text.size() - 2), "\r\n");
}

TEST(ProgressBar, EndsItsLineWhenTrainingFails) {
  const Terminal terminal;
  ASSERT_TRUE(terminal.works());
  {
    ProgressBar bar(1);
    bar.begin("Epoch 1/1", std::nullopt, 0);
    wait_for_interval();
    bar.step(3, 8, [] { return callbacks::Logs(); });
  }
  const std::string text = terminal.text();
  EXPECT_NE(text.find("\r\x1b[K3/Unknown - "), std::string::npos) << text;
  EXPECT_EQ(text.substr(text.size() - 2), "\r\n");
}

constexpr int kSteps = 20;

// Shows all steps of an epoch.
void show_steps(ProgressBar& bar) {
  bar.begin("Epoch 1/2", kSteps, 0);
  for (int step = 1; step <= kSteps; ++step) bar.step(step, 128, logs_of_training);
}

class ProgressBarWidth : public ::testing::TestWithParam<unsigned short> {};

TEST_P(ProgressBarWidth, UpdatesOneLineThatFits) {
  const Terminal terminal(GetParam());
  ASSERT_TRUE(terminal.works());
  ProgressBar bar(1, std::chrono::milliseconds(0));
  show_steps(bar);
  const std::string printed = terminal.text();
  EXPECT_EQ(std::count(printed.begin(), printed.end(), '\n'), 1) << "the newline of the title";
  const std::vector<std::string> lines = shown(printed, GetParam());
  ASSERT_EQ(lines.size(), 2u) << printed;
  EXPECT_LT(lines[1].size(), GetParam());
  EXPECT_NE(lines[1].find("loss: 0.3521 - accuracy: 0.8912"), std::string::npos) << lines[1];
}

TEST_P(ProgressBarWidth, LeavesLinesThatFit) {
  const Terminal terminal(GetParam());
  ASSERT_TRUE(terminal.works());
  {
    ProgressBar bar(1, std::chrono::milliseconds(0));
    show_steps(bar);
    bar.end(logs_of_training());
  }
  const std::vector<std::string> lines = shown(terminal.text(), GetParam());
  EXPECT_LE(lines.size(), GetParam() > 40 ? 3u : 4u) << "the title, the line, the next one's place";
  for (const std::string& line : lines) EXPECT_LT(line.size(), GetParam());
}

INSTANTIATE_TEST_SUITE_P(Columns, ProgressBarWidth, ::testing::Values(40, 80, 110, 200));

TEST(ProgressBar, OmitsSpeedAndBarOnANarrowTerminal) {
  const auto line_at = [](unsigned short columns) {
    const Terminal terminal(columns);
    ProgressBar bar(1, std::chrono::milliseconds(0));
    bar.begin("", 469, 0);
    bar.step(100, 128, [] { return callbacks::Logs{{"loss", 0.5}}; });
    return shown(terminal.text(), columns).back();
  };
  const auto parts = [](const std::string& line) {
    std::string found;
    for (const char* part : {"samples/s", "/step", "[==", "ETA", "100/469", "loss"})
      found += line.find(part) != std::string::npos ? std::string(part) + " " : "";
    return found;
  };
  EXPECT_EQ(parts(line_at(200)), "samples/s /step [== ETA 100/469 loss ");
  EXPECT_EQ(parts(line_at(81)), "/step [== ETA 100/469 loss ");
  EXPECT_EQ(parts(line_at(68)), "[== ETA 100/469 loss ");
  EXPECT_EQ(parts(line_at(45)), "ETA 100/469 loss ");
  EXPECT_EQ(parts(line_at(24)), "100/469 loss ");
  EXPECT_EQ(parts(line_at(14)), "loss ");
  EXPECT_EQ(parts(line_at(5)), "");
}

TEST(ProgressBar, FollowsTheTerminalsSize) {
  const Terminal terminal(200);
  ASSERT_TRUE(terminal.works());
  ProgressBar bar(1, std::chrono::milliseconds(0));
  bar.begin("", 469, 0);
  bar.step(1, 128, logs_of_training);
  EXPECT_GT(shown(terminal.text(), 200).back().size(), 80u);
  for (const unsigned short columns : {80, 40, 120}) {
    terminal.resize(columns);
    bar.step(2, 128, logs_of_training);
    const std::string text = terminal.text();
    EXPECT_TRUE(text.starts_with("\r\x1b[K")) << "the rest of a longer line is erased";
    EXPECT_LT(shown(text, 1000).back().size(), columns);
  }
}

TEST(ProgressBar, UsesColumnsOfTheEnvironmentIfTheTerminalHasNone) {
  const Terminal terminal(0);
  ProgressBar bar(1, std::chrono::milliseconds(0));
  const auto width = [&](const char* columns) {
    setenv("COLUMNS", columns, 1);
    bar.begin("", 469, 0);
    bar.step(1, 128, logs_of_training);
    return shown(terminal.text(), 1000).back().size();
  };
  EXPECT_LT(width("60"), 60u);
  EXPECT_GT(width("300"), 80u);
  for (const char* columns : {"", "0", "-3", "many"}) EXPECT_LT(width(columns), 80u) << columns;
}

TEST(ProgressBar, KeepsAllMetricsInTheLastLineOfAnEpoch) {
  const Terminal terminal(40);
  ASSERT_TRUE(terminal.works());
  {
    ProgressBar bar(1, std::chrono::milliseconds(0));
    show_steps(bar);
    bar.end({{"loss", 0.25}, {"accuracy", 0.5}, {"val_loss", 0.75}, {"val_accuracy", 1.0}});
  }
  std::string all;
  for (const std::string& line : shown(terminal.text(), 40)) {
    EXPECT_LT(line.size(), 40u);
    all += line + "|";
  }
  EXPECT_NE(all.find("loss: 0.2500|accuracy: 0.5000 - val_loss: 0.7500|val_accuracy: 1.0000||"),
            std::string::npos)
      << all;
}

}  // namespace
}  // namespace tandem::progress_bar_test
