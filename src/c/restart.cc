// The functions of tandem_c.h about restart.
#include <algorithm>
#include <cstring>
#include <exception>
#include <limits>

#include "c/status.h"
#include "c/window.h"

namespace tandem::c {
namespace {

// The parts of a checkpoint, while no other thread uses them.
class Contents {
 public:
  // Collective over the group of the first model.
  Contents(const char* what, const char* directory, tandem_model* const* models,
           std::int32_t n_models, tandem_window* const* windows, std::int32_t n_windows) {
    if (n_models < 1 || !models)
      fail<InvalidArgumentError>("[{}] expected at least one model, got {}", what,
                                 models ? n_models : 0);
    const auto first = c::models().get(models[0], what);
    std::exception_ptr wrong;  // of this rank
    try {
      folder_ = &required(directory, what, "a directory");
      if (n_windows < 0 || (n_windows > 0 && !windows))
        fail<InvalidArgumentError>("[{}] expected windows, got {}", what, n_windows);
      for (std::int32_t i = 0; i < n_models; ++i)
        models_.push_back(c::models().get(models[i], what));
      for (std::int32_t i = 0; i < n_windows; ++i)
        windows_.push_back(c::windows().get(windows[i], what));
      std::vector<SharedMutex*> of_models;
      for (const auto& model : models_) of_models.push_back(&model->mutex());
      lock_once(of_models, model_locks_, what);
    } catch (...) {
      wrong = std::current_exception();
    }
    group_ = CollectiveLock(first->group().get());
    online::exchange(ranks_of(first->group()), what, 0, [&] {
      if (wrong) std::rethrow_exception(wrong);
      std::vector<std::mutex*> of_windows;
      for (const auto& window : windows_) of_windows.push_back(&window->mutex);
      lock_once(of_windows, window_locks_, what);
      return std::vector<double>();
    });
    for (const auto& model : models_) learners.emplace_back(model->learner());
    for (const auto& window : windows_) samples.push_back(window->window);
  }

  const std::string& folder() const { return folder_; }
  std::vector<online::Learner> learners;
  std::vector<online::Window> samples;

 private:
  // In one order in all threads.
  template <class Mutex>
  static void lock_once(std::vector<Mutex*>& all, std::vector<std::unique_lock<Mutex>>& locks,
                        const char* what) {
    std::sort(all.begin(), all.end());
    if (std::adjacent_find(all.begin(), all.end()) != all.end())
      fail<InvalidArgumentError>("[{}] expected each model and window once", what);
    for (Mutex* mutex : all) locks.emplace_back(*mutex);
  }

  std::string folder_;
  std::vector<std::shared_ptr<HostModel>> models_;
  std::vector<std::shared_ptr<HostWindow>> windows_;
  // Models, then their group, then windows, as everywhere.
  std::vector<std::unique_lock<SharedMutex>> model_locks_;
  CollectiveLock group_{nullptr};
  std::vector<std::unique_lock<std::mutex>> window_locks_;
};

// Calls use(learner, window), either of which may be null.
template <class Use>
void with_state(const char* what, tandem_model* model, tandem_window* window, const Use& use) {
  if (!model && !window)
    fail<InvalidArgumentError>("[{}] expected a model or a window, got null for both", what);
  std::optional<online::Learner> learner;
  std::shared_ptr<HostWindow> samples;
  if (model) learner.emplace(models().get(model, what)->learner());
  if (window) samples = windows().get(window, what);
  std::unique_lock<std::mutex> lock;
  if (samples) lock = std::unique_lock(samples->mutex);
  use(learner ? &*learner : nullptr, samples ? &samples->window : nullptr);
}

}  // namespace
}  // namespace tandem::c

using namespace tandem;
using namespace tandem::c;

tandem_status tandem_checkpoint_write(const char* directory, int64_t cycle,
                                      tandem_model* const* models, int32_t n_models,
                                      tandem_window* const* windows, int32_t n_windows) {
  return guarded([&] {
    const Contents all("checkpoint_write", directory, models, n_models, windows, n_windows);
    online::write_checkpoint(all.folder(), cycle, all.learners, all.samples);
  });
}

tandem_status tandem_checkpoint_read(const char* directory, int64_t cycle,
                                     tandem_model* const* models, int32_t n_models,
                                     tandem_window* const* windows, int32_t n_windows,
                                     int64_t* read) {
  return guarded([&] {
    const Contents all("checkpoint_read", directory, models, n_models, windows, n_windows);
    const std::int64_t found =
        online::read_checkpoint(all.folder(), cycle, all.learners, all.samples);
    if (read) *read = found;
  });
}

tandem_status tandem_state_size(tandem_model* model, tandem_window* window, size_t* bytes) {
  return guarded([&] {
    with_state("state_size", model, window, [&](const auto* learner, const auto* samples) {
      required(bytes, "state_size", "a pointer for the size") =
          online::state_bytes(learner, samples).size();
    });
  });
}

tandem_status tandem_state_get(tandem_model* model, tandem_window* window, void* bytes,
                               size_t size) {
  return guarded([&] {
    with_state("state_get", model, window, [&](const auto* learner, const auto* samples) {
      required(static_cast<char*>(bytes), "state_get", "memory");
      const std::string state = online::state_bytes(learner, samples);
      if (size < state.size())
        fail<InvalidArgumentError>("[state_get] expected memory of {} bytes, got {}", state.size(),
                                   size);
      std::memcpy(bytes, state.data(), state.size());
    });
  });
}

tandem_status tandem_state_set(tandem_model* model, tandem_window* window, const void* bytes,
                               size_t size) {
  return guarded([&] {
    with_state("state_set", model, window, [&](const auto* learner, const auto* samples) {
      const char& first = required(static_cast<const char*>(bytes), "state_set", "memory");
      if (size > static_cast<std::size_t>(std::numeric_limits<std::ptrdiff_t>::max()))
        fail<InvalidArgumentError>("[state_set] expected a number of bytes, got {}", size);
      online::restore_bytes(learner, samples, std::string(&first, size));
    });
  });
}
