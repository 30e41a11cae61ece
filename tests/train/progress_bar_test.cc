#include "train/progress_bar.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <unistd.h>

#include <chrono>
#include <thread>

namespace tandem {
namespace {

// stderr as a terminal, while it lives.
class Terminal {
 public:
  Terminal() : saved_(dup(STDERR_FILENO)) {
    int slave = -1;
    if (openpty(&master_, &slave, nullptr, nullptr, nullptr) != 0) return;
    dup2(slave, STDERR_FILENO);
    close(slave);
  }
  ~Terminal() {
    dup2(saved_, STDERR_FILENO);
    close(saved_);
    close(master_);
  }
  bool works() const { return master_ >= 0; }
  // What has been written since the last call; the terminal writes "\r\n" for "\n".
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
  int saved_, master_ = -1;
};

constexpr std::chrono::milliseconds kRedraw{100};

void wait_for_redraw() { std::this_thread::sleep_for(kRedraw); }

TEST(ProgressBar, RedrawsOneLineOnATerminal) {
  const Terminal terminal;
  ASSERT_TRUE(terminal.works());
  {
    ProgressBar bar(1);
    const auto begin = std::chrono::steady_clock::now();
    bar.begin("Epoch 1/2", 300, 0);
    int read = 0;
    const auto figures = [&] {
      ++read;
      return callbacks::Logs{{"accuracy", 0.5}, {"loss", 0.00012}};
    };
    for (int step = 1; step <= 99; ++step) bar.step(step, 8, figures);
    const auto redraws = (std::chrono::steady_clock::now() - begin) / kRedraw;
    EXPECT_LE(read, 1 + redraws) << "steps in quick succession are not drawn";
    wait_for_redraw();
    bar.step(100, 8, figures);
    bar.end({{"loss", 0.25}, {"accuracy", 0.75}, {"val_loss", 0.5}});
  }
  const std::string text = terminal.text();
  EXPECT_EQ(text.substr(0, 11), "Epoch 1/2\r\n");
  EXPECT_NE(text.find("\r100/300 [==========>...................] - ETA: "), std::string::npos)
      << text;
  EXPECT_NE(text.find(" - loss: 1.2000e-04 - accuracy: 0.5000"), std::string::npos) << text;
  EXPECT_NE(text.find("100/100 [==============================] - "), std::string::npos) << text;
  EXPECT_NE(text.find(" - loss: 0.2500 - accuracy: 0.7500 - val_loss: 0.5000"), std::string::npos)
      << text;
  EXPECT_EQ(text.substr(text.size() - 2), "\r\n");
}

TEST(ProgressBar, LeavesTheTerminalOnANewLineWhenTrainingBreaksOff) {
  const Terminal terminal;
  ASSERT_TRUE(terminal.works());
  {
    ProgressBar bar(1);
    bar.begin("Epoch 1/1", std::nullopt, 0);
    wait_for_redraw();
    bar.step(3, 8, [] { return callbacks::Logs(); });
  }
  const std::string text = terminal.text();
  EXPECT_NE(text.find("\r3/Unknown - "), std::string::npos) << text;
  EXPECT_EQ(text.substr(text.size() - 2), "\r\n");
}

}  // namespace
}  // namespace tandem
