// Other programs on the cores of this process.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

namespace tandem {

// How many cores a team leaves to other programs. The threads of a team wait for each other, and
// spin meanwhile: where another program has the core of one of them, a step takes up to 30 times as
// long as on one thread. For one thread and its teams.
class SharedCores {
 public:
  // Since the threads of a team began: their time on a core, and that in which they waited for one.
  struct Times {
    std::int64_t running_ms = 0, waiting_ms = 0;
  };

  int others() const { return others_; }
  // Whether update() is due. `now_ms` does not decrease.
  bool is_due(std::int64_t now_ms) const { return now_ms >= next_look_; }
  // `team`: the threads that the team has where it leaves none. `read`: their times; not called at
  // the first update of a team, which may not have started yet.
  void update(int team, std::int64_t now_ms, const std::function<Times()>& read);

 private:
  int others_ = 0, team_ = 0;
  std::int64_t next_look_ = 0;
  std::optional<Times> begin_;         // of the interval
  std::int64_t resumed_ = -1'000'000;  // when the team took all cores again
  std::int64_t pause_ = 0;             // how long it leaves them
};

// The cores that a team of `team` threads of the calling thread leaves to other programs now, less
// than `team`; 0 if the environment says how threads wait for each other.
int cores_left_to_others(SharedCores& cores, int team);

}  // namespace tandem
