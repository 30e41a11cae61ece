// Any calls of tandem_c.h in any order: a status with a message, or success without one, and the
// program goes on. Handles are null, freed, or of another kind; arrays have any description, over
// memory that is as large as a right one may reach.
#include <tandem_c.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "core/status.h"

namespace {

constexpr std::int64_t kMost = 6;        // sizes of an axis
constexpr std::size_t kElements = 1024;  // on both sides of an array's start

// The bytes of the input, then zeros.
class Choices {
 public:
  explicit Choices(std::span<const std::uint8_t> bytes) : bytes_(bytes) {}
  bool empty() const { return bytes_.empty(); }
  std::uint8_t next() {
    if (bytes_.empty()) return 0;
    const std::uint8_t first = bytes_.front();
    bytes_ = bytes_.subspan(1);
    return first;
  }
  template <class T>
  T any_of(std::initializer_list<T> values) {
    return values.begin()[next() % values.size()];
  }

 private:
  std::span<const std::uint8_t> bytes_;
};

// The transport of a group of one rank, which sends nothing.
tandem_transport transport_of_one(std::size_t size, std::int32_t rank, std::int32_t ranks) {
  tandem_transport made{};
  made.size = size;
  made.rank = rank;
  made.ranks = ranks;
  made.send = [](void*, const void*, std::int64_t, std::int32_t, std::int32_t, void**) {
    return 1;
  };
  made.receive = [](void*, void*, std::int64_t, std::int32_t, std::int32_t, void**) { return 1; };
  made.test = [](void*, void**, std::int32_t*) { return 1; };
  made.cancel = [](void*, void**) { return 0; };
  made.alive = [](void*) { return 1; };
  made.release = [](void*) {};
  made.split = [](void*, const std::int32_t*, std::int32_t, std::int32_t, tandem_transport* part) {
    *part = transport_of_one(sizeof(tandem_transport), 0, 1);
    return 0;
  };
  return made;
}

// Handles of one kind: those that were made, freed ones among them.
template <class Handle>
struct Pool {
  std::vector<Handle*> made;
  Handle* pick(Choices& choices, void* foreign) {
    const std::uint8_t which = choices.next();
    if (which < 8) return nullptr;
    if (which < 16) return static_cast<Handle*>(foreign);
    if (which < 24) return reinterpret_cast<Handle*>(std::uintptr_t{which} << 32);
    return made.empty() ? nullptr : made[which % made.size()];
  }
};

struct State {
  Pool<tandem_group> groups;
  Pool<tandem_model> models;
  Pool<tandem_window> windows;
  Pool<tandem_trainer> trainers;
  std::vector<double> memory = std::vector<double>(2 * kElements, 0.25);
  std::vector<char> bytes = std::vector<char>(1 << 14);
  std::string folder;
};

void check(tandem_status status) {
  TANDEM_ASSERT(status >= TANDEM_OK && status < TANDEM_INTERNAL);
  TANDEM_ASSERT((status == TANDEM_OK) == (tandem_last_error()[0] == '\0'));
  TANDEM_ASSERT(std::strcmp(tandem_status_name(status), "UNKNOWN") != 0);
}

// Any element that the description reaches is in the memory, or it is refused.
tandem_array array_of(Choices& choices, State& state, std::int64_t features) {
  const std::int64_t sizes[2] = {1 + choices.next() % 4, features};
  tandem_array array = tandem_view(state.memory.data() + kElements, TANDEM_FLOAT64, 2, sizes);
  switch (choices.next() % 24) {
    case 0: array.data = nullptr; break;
    case 1: array.dtype = choices.any_of({0, 1, 3, 4, 5, -1, INT32_MAX}); break;
    case 2: array.rank = choices.any_of({-1, 0, 1, 3, 8, 9, INT32_MIN, INT32_MAX}); break;
    case 3: array.dims[choices.next() % 8] = choices.next() % (kMost + 1); break;
    case 4:
      array.dims[choices.next() % 2] = choices.any_of({INT64_MIN, INT64_MAX, INT64_C(-1)});
      break;
    case 5:
      array.strides[0] = choices.any_of({INT64_C(7), INT64_C(-7), INT64_C(1)});
      array.strides[1] = choices.any_of({INT64_C(0), INT64_C(2), INT64_C(-3)});
      break;
    case 6: array.strides[1] = choices.any_of({INT64_MIN, INT64_MAX}); break;
    case 7: array.dims[0] = 0; break;
    default: break;
  }
  // Larger descriptions would reach outside of this program's memory.
  for (int axis = 0; axis < 8; ++axis)
    if (array.dims[axis] > kMost && array.dims[axis] != INT64_MAX) array.dims[axis] = kMost;
  return array;
}

void make_objects(Choices& choices, State& state) {
  const char* definition =
      choices.any_of<const char*>({R"({"inputs": [2], "normalize": true, )"
                                   R"("layers": [{"type": "dense", "units": 1, "name": "d"}])"
                                   R"(, "optimizer": "sgd", "loss": "mse"})",
                                   R"({"inputs": [2], "layers": [{"type": "dense", "units": 1}]})",
                                   R"({"inputs": {"a": [2], "b": [1]}, "layers": ["concatenate", )"
                                   R"({"type": "dense", "units": 1, "name": "c"}, )"
                                   R"({"type": "dense", "units": 2, "name": "d"}], )"
                                   R"("outputs": ["c", "d"], "optimizer": "sgd", "loss": "mse"})",
                                   R"({"inputs": [2]})", "{", nullptr});
  const tandem_transport transport =
      transport_of_one(choices.any_of<std::size_t>({sizeof(tandem_transport), 8, 0, SIZE_MAX}),
                       choices.any_of({0, 0, 0, 1, -1}), choices.any_of({1, 1, 1, 0, -1}));
  tandem_group* group = nullptr;
  const tandem_status grouped = tandem_group_create(&transport, &group);
  check(grouped);
  if (grouped == TANDEM_OK) state.groups.made.push_back(group);
  group = choices.next() % 2 ? state.groups.pick(choices, state.bytes.data()) : nullptr;
  tandem_model* model = nullptr;
  const tandem_status status = tandem_model_create(definition, group, &model);
  check(status);
  if (status == TANDEM_OK) state.models.made.push_back(model);
  tandem_window_options options = TANDEM_WINDOW_OPTIONS;
  options.capacity = choices.any_of<std::int64_t>({40, 8, 0, -1, INT64_MAX});
  options.batch = choices.any_of<std::int64_t>({4, 8, 0, -1, INT64_MAX});
  options.replace = choices.any_of({0, 1, 2, -1});
  options.holdout = choices.any_of({0.0, 0.25, 0.6, -1.0, 0.0 / 0.0});
  options.size = choices.any_of<std::size_t>({sizeof(options), sizeof(options), 8, 0, SIZE_MAX});
  tandem_window* window = nullptr;
  const tandem_status made =
      tandem_window_create(state.models.pick(choices, state.bytes.data()), &options, &window);
  check(made);
  if (made == TANDEM_OK) state.windows.made.push_back(window);
}

void use_model(Choices& choices, State& state, tandem_model* model) {
  tandem_array x = array_of(choices, state, 2), y = array_of(choices, state, 1);
  double value = 0.0;
  const char* name =
      choices.any_of<const char*>({"step", "learning_rate", "d/kernel", "", nullptr});
  const tandem_array several_x[2] = {x, array_of(choices, state, 1)};
  tandem_array several_y[2] = {y, array_of(choices, state, 2)};
  const auto inputs = choices.any_of<std::int32_t>({2, 2, 2, 1, 0, -1, INT32_MAX});
  const auto outputs = choices.any_of<std::int32_t>({2, 2, 2, 1, 0, -1, INT32_MIN});
  const tandem_array* const xs = choices.next() % 8 ? several_x : nullptr;
  switch (choices.next() % 13) {
    case 10:
      return check(tandem_train_multi(model, inputs, xs, outputs, several_y, nullptr, &value));
    case 11: return check(tandem_evaluate_multi(model, inputs, xs, outputs, several_y, &value));
    case 12: return check(tandem_predict_multi(model, inputs, xs, outputs, several_y));
    case 0: return check(tandem_train(model, &x, &y, nullptr, &value));
    case 1: return check(tandem_train(model, &x, &y, &y, nullptr));
    case 2: return check(tandem_evaluate(model, &x, &y, &value));
    case 3: return check(tandem_predict(model, &x, &y));
    case 4: return check(tandem_backward(model, &x, &y, choices.next() % 2, nullptr));
    case 5: return check(tandem_model_observe(model, &x, &y));
    case 6: return check(tandem_model_get(model, name, &value));
    case 7: return check(tandem_model_set(model, name, choices.any_of({0.1, -1.0, 0.0 / 0.0})));
    case 8: return check(tandem_model_read(model, name, choices.next() % 8 ? &y : nullptr));
    default: return check(tandem_model_write(model, name, &y));
  }
}

void use_window(Choices& choices, State& state, tandem_model* model, tandem_window* window) {
  const tandem_array x = array_of(choices, state, 2), y = array_of(choices, state, 1);
  tandem_budget budget = TANDEM_BUDGET;
  tandem_report report = TANDEM_REPORT;
  std::int64_t samples = 0, pushed = 0;
  std::size_t bytes = 0;
  switch (choices.next() % 7) {
    case 0:
    case 1: return check(tandem_window_push(window, &x, choices.next() % 8 ? &y : nullptr));
    case 2:
      budget.max_steps = choices.any_of<std::int64_t>({2, 1, 0, -1});
      budget.max_seconds = choices.any_of({0.0, 1e-9, -1.0});
      report.size = choices.any_of<std::size_t>({sizeof(report), 16, 1, 0});
      return check(tandem_window_train(window, model, &budget, &report));
    case 3: return check(tandem_window_count(window, &samples, &pushed));
    case 4: return check(tandem_state_size(model, window, &bytes));
    case 5:
      return check(tandem_state_get(model, window, state.bytes.data(),
                                    choices.any_of<std::size_t>({state.bytes.size(), 0, 100})));
    default:
      state.bytes[choices.next()] = static_cast<char>(choices.next());
      return check(tandem_state_set(model, window, state.bytes.data(),
                                    choices.any_of<std::size_t>({state.bytes.size(), 0, 100})));
  }
}

void use_trainer(Choices& choices, State& state, tandem_model* model, tandem_window* window) {
  tandem_trainer* trainer = state.trainers.pick(choices, state.bytes.data());
  tandem_report report = TANDEM_REPORT;
  switch (choices.next() % 3) {
    case 0: {
      tandem_trainer_options options = TANDEM_TRAINER_OPTIONS;
      options.max_lag = choices.any_of<std::int64_t>({2, 0, -1});
      options.steps_per_push = choices.any_of({1.0, 0.5, 0.0, -1.0});
      const tandem_status status = tandem_trainer_start(model, window, &options, &trainer);
      if (status == TANDEM_OK) state.trainers.made.push_back(trainer);
      return check(status);
    }
    case 1: return check(tandem_trainer_update(trainer, &report));
    default: return check(tandem_trainer_stop(trainer, nullptr));
  }
}

void use_files(Choices& choices, State& state, tandem_model* model, tandem_window* window) {
  const char* path =
      choices.any_of<const char*>({state.folder.c_str(), "", "no/such/folder", nullptr});
  const auto cycle = choices.any_of<std::int64_t>({1, 0, -1, -2, INT64_MAX});
  switch (choices.next() % 4) {
    case 0:
      return check(tandem_checkpoint_write(state.folder.c_str(), cycle, &model, choices.next() % 2,
                                           &window, choices.next() % 2));
    case 1:
      return check(tandem_checkpoint_read(path, cycle, &model, choices.next() % 2, &window,
                                          choices.next() % 2, nullptr));
    case 2:
      return check(
          tandem_model_save(model, choices.any_of<const char*>({"", "no/such/file", nullptr})));
    default: {
      tandem_model* loaded = nullptr;
      const tandem_status status = tandem_model_load(path, nullptr, &loaded);
      if (status == TANDEM_OK) state.models.made.push_back(loaded);
      return check(status);
    }
  }
}

void use_settings(Choices& choices, State& state) {
  const double limit = tandem_time_limit();
  static_cast<void>(tandem_view(state.memory.data(), TANDEM_INT32,
                                choices.any_of({2, -1, 9, INT32_MAX, INT32_MIN}), nullptr));
  switch (choices.next() % 6) {
    case 0:
      check(tandem_set_time_limit(choices.any_of({60.0, 0.0, -1.0, 0.0 / 0.0, 1e300})));
      return check(tandem_set_time_limit(limit));
    case 1: return check(tandem_set_threads(choices.any_of({-1, INT32_MIN})));
    case 2: return check(tandem_set_seed(choices.next()));
    case 3:
      check(tandem_set_replica_invariant_parts(choices.any_of({8, 3, -1, INT32_MAX})));
      return check(tandem_set_replica_invariant_parts(choices.any_of({0, 2})));
    case 4:
      tandem_set_error_handler(choices.next() % 2 ? [](tandem_status, const char*, void*) {}
                                                  : tandem_error_handler(nullptr),
                               nullptr);
      return;
    default: {
      const auto status = choices.any_of<tandem_status>({8, 1, 0, 14, -1, INT32_MAX});
      const tandem_status got = tandem_fail(status, choices.next() % 2 ? "a message" : nullptr);
      TANDEM_ASSERT(got == TANDEM_INTERNAL || got == status || got == TANDEM_INVALID_ARGUMENT);
    }
  }
}

void use_rest(Choices& choices, State& state, tandem_model* model, tandem_window* window) {
  tandem_array spec = array_of(choices, state, 2);
  tandem_group* group = state.groups.pick(choices, model);
  std::int32_t rank = 0, size = 0;
  switch (choices.next() % 8) {
    case 6: return use_settings(choices, state);
    case 7: return check(tandem_group_free(choices.next() % 4 ? nullptr : group));
    case 0: return check(tandem_model_free(choices.next() % 4 ? nullptr : model));
    case 1: return check(tandem_window_free(choices.next() % 4 ? nullptr : window));
    case 2: return check(tandem_model_spec(model, choices.any_of({0, 1, 2, -1}), &spec));
    case 3: return check(tandem_group_rank(group, &rank, &size));
    case 4: return check(tandem_group_create(nullptr, nullptr));
    default: return check(tandem_group_sum(group, choices.next() % 2 ? &spec : nullptr));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  Choices choices({bytes, size});
  State state;
  state.folder = "c_functions_fuzz_cycles";
  make_objects(choices, state);
  while (!choices.empty()) {
    tandem_model* model = state.models.pick(choices, state.memory.data());
    tandem_window* window = state.windows.pick(choices, state.memory.data());
    switch (choices.next() % 16) {
      case 0: make_objects(choices, state); break;
      case 1:
      case 2:
      case 3:
      case 4:
      case 5:
      case 6: use_model(choices, state, model); break;
      case 7:
      case 8:
      case 9:
      case 10: use_window(choices, state, model, window); break;
      case 11:
      case 12: use_trainer(choices, state, model, window); break;
      case 13: use_files(choices, state, model, window); break;
      default: use_rest(choices, state, model, window); break;
    }
  }
  for (tandem_trainer* trainer : state.trainers.made) tandem_trainer_stop(trainer, nullptr);
  for (tandem_window* window : state.windows.made) tandem_window_free(window);
  for (tandem_model* model : state.models.made) tandem_model_free(model);
  for (tandem_group* group : state.groups.made) tandem_group_free(group);
  check(tandem_set_replica_invariant_parts(0));
  return 0;
}
