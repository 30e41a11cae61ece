// The functions of tandem_c.h about trainers.
#include <numeric>

#include "c/status.h"
#include "c/structures.h"
#include "c/window.h"
#include "comm/communicator.h"
#include "group/process_group_impl.h"
#include "tandem/random.h"

namespace tandem::c {
namespace {

struct HostTrainer {
  std::shared_ptr<HostModel> model;
  std::shared_ptr<HostWindow> window;
  std::shared_ptr<HostModel> training;
  std::optional<online::Trainer> trainer;
  std::mutex mutex;  // of update and stop; taken before the model's
};

Handles<tandem_trainer, HostTrainer>& trainers() {
  static auto& all = *new Handles<tandem_trainer, HostTrainer>("trainer");
  return all;
}

// A group of the same ranks, for another thread. Collective.
std::shared_ptr<Group> duplicate(const std::shared_ptr<Group>& group) {
  if (!group) return nullptr;
  comm::ProcessGroupImpl& ranks = *group->group.impl();
  std::vector<int> all(static_cast<std::size_t>(ranks.size()));
  std::iota(all.begin(), all.end(), 0);
  auto copy = std::make_shared<Group>();
  copy->group = comm::ProcessGroup(std::make_shared<comm::ProcessGroupImpl>(
      ranks, ranks.ranks(), "trainer", ranks.communicator().split(all)));
  return copy;
}

// A model of the same definition. The process's random numbers are as before.
std::shared_ptr<HostModel> same_model(const HostModel& model) {
  const random::GeneratorState before = random::get_state();
  auto copy = std::make_shared<HostModel>(model.definition(), duplicate(model.group()));
  random::set_state(before);
  return copy;
}

}  // namespace
}  // namespace tandem::c

using namespace tandem;
using namespace tandem::c;

tandem_status tandem_trainer_start(tandem_model* model_handle, tandem_window* window_handle,
                                   const tandem_trainer_options* given, tandem_trainer** trainer) {
  constexpr const char* kWhat = "trainer_start";
  return guarded([&] {
    auto made = std::make_shared<HostTrainer>();
    made->model = c::models().get(model_handle, kWhat);
    const std::unique_lock lock(made->model->mutex());
    const CollectiveLock group(made->model->group().get());
    std::unique_lock<std::mutex> of_window;
    tandem_trainer_options options = TANDEM_TRAINER_OPTIONS;
    online::exchange(ranks_of(made->model->group()), kWhat, 0, [&] {
      required(trainer, kWhat, "a pointer for the trainer");
      made->window = windows().get(window_handle, kWhat);
      of_window = std::unique_lock(made->window->mutex);
      options = known_options<tandem_trainer_options>(given, TANDEM_TRAINER_OPTIONS, kWhat,
                                                      "TRAINER_OPTIONS");
      return std::vector<double>();
    });
    made->training = same_model(*made->model);
    made->trainer.emplace(online::Learner(made->model->learner()),
                          online::Learner(made->training->learner()), made->window->window,
                          online::TrainerOptions{.max_lag = options.max_lag,
                                                 .steps_per_push = options.steps_per_push,
                                                 .threads = options.threads});
    made->window->trainer = made->trainer;
    *trainer = trainers().add(made);
  });
}

tandem_status tandem_trainer_update(tandem_trainer* handle, tandem_report* report) {
  return guarded([&] {
    const auto trainer = trainers().get(handle, "trainer_update");
    expect_report(report, "trainer_update", "REPORT");
    const std::lock_guard lock(trainer->mutex);
    write_report(report, host_report(trainer->trainer->update()));
  });
}

tandem_status tandem_trainer_stop(tandem_trainer* handle, tandem_report* report) {
  return guarded([&] {
    const auto trainer = trainers().get(handle, "trainer_stop");
    expect_report(report, "trainer_stop", "REPORT");
    trainers().remove(handle, "trainer_stop");
    const std::lock_guard lock(trainer->mutex);
    {
      const std::lock_guard pushes(trainer->window->mutex);
      trainer->window->trainer.reset();
    }
    write_report(report, host_report(trainer->trainer->stop()));
  });
}
