// The functions of tandem_c.h about windows.
#include "c/window.h"

#include "c/status.h"
#include "c/structures.h"
#include "online/window.h"

namespace tandem::c {

Handles<tandem_window, HostWindow>& windows() {
  static auto& all = *new Handles<tandem_window, HostWindow>("window");
  return all;
}

tandem_report host_report(const online::Report& report) {
  return {0, report.steps, report.step, report.loss, report.holdout_loss, report.seconds};
}

namespace {

online::WindowOptions window_options(const tandem_window_options* given) {
  const tandem_window_options options = known_options<tandem_window_options>(
      given, TANDEM_WINDOW_OPTIONS, "window_create", "WINDOW_OPTIONS");
  return {.capacity = options.capacity,
          .batch_size = options.batch,
          .min_samples = options.min_samples,
          .replace = static_cast<online::Replace>(options.replace == TANDEM_REPLACE_OLDEST ||
                                                          options.replace == TANDEM_REPLACE_RANDOM
                                                      ? options.replace
                                                      : 0xff),
          .holdout = options.holdout,
          .seed = static_cast<std::uint64_t>(options.seed)};
}

}  // namespace
}  // namespace tandem::c

using namespace tandem;
using namespace tandem::c;

tandem_status tandem_window_create(const tandem_model* model, const tandem_window_options* options,
                                   tandem_window** window) {
  return guarded([&] {
    tandem_window*& made = required(window, "window_create", "a pointer for the window");
    const auto found = c::models().get(model, "window_create");
    found->learner()->expect_one("window_create");
    made = windows().add(std::make_shared<HostWindow>(found, window_options(options)));
  });
}

tandem_status tandem_window_push(tandem_window* handle, const tandem_array* x,
                                 const tandem_array* y) {
  return guarded([&] {
    const auto window = windows().get(handle, "window_push");
    const auto [xs, ys] = window->model->samples(x, y);
    const std::lock_guard lock(window->mutex);
    if (window->trainer)
      window->trainer->push(xs, ys);
    else
      window->window.push(xs, ys);
  });
}

tandem_status tandem_window_count(const tandem_window* handle, int64_t* samples, int64_t* pushed) {
  return guarded([&] {
    const auto window = windows().get(handle, "window_count");
    const std::lock_guard lock(window->mutex);
    const std::int64_t count = window->window.size() + window->window.holdout_size();
    if (samples) *samples = count;
    if (pushed) *pushed = window->window.pushed();
  });
}

tandem_status tandem_window_train(tandem_window* handle, tandem_model* model_handle,
                                  const tandem_budget* budget, tandem_report* report) {
  return guarded([&] {
    const auto model = c::models().get(model_handle, "window_train");
    const std::unique_lock lock(model->mutex());
    const CollectiveLock group(model->group().get());
    std::shared_ptr<HostWindow> window;
    std::unique_lock<std::mutex> of_window;
    const online::Report done = model->learner()->train("window_train", [&] {
      window = windows().get(handle, "window_train");
      of_window = std::unique_lock(window->mutex);
      window->window.impl()->expect_untrained("window_train");
      const tandem_budget limits =
          known_options<tandem_budget>(budget, TANDEM_BUDGET, "window_train", "BUDGET");
      expect_report(report, "window_train", "REPORT");
      return std::pair(window->window, online::Budget{.max_steps = limits.max_steps,
                                                      .max_seconds = limits.max_seconds});
    });
    write_report(report, host_report(done));
  });
}

tandem_status tandem_window_free(tandem_window* window) {
  return guarded([&] { windows().remove(window, "window_free"); });
}
