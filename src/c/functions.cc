// The functions of tandem_c.h about models, and settings.
#include "c/model.h"
#include "c/status.h"
#include "tandem/config.h"
#include "tandem/random.h"

namespace tandem::c {
namespace {

std::shared_ptr<Group> group_or_null(const tandem_group* handle, const char* what) {
  return handle ? groups().get(handle, what) : nullptr;
}

// Makes a model by `make(group)`, which is collective.
template <class Make>
tandem_status add_model(tandem_group* handle, tandem_model** made, const char* what,
                        const Make& make) {
  return guarded([&] {
    tandem_model*& result = required(made, what, "a pointer for the model");
    const std::shared_ptr<Group> group = group_or_null(handle, what);
    const CollectiveLock lock(group.get());
    result = c::models().add(make(group));
  });
}

// Calls `use(model)` while no other thread changes the model.
template <class Use>
tandem_status with_model(const tandem_model* handle, const char* what, const Use& use) {
  return guarded([&] {
    const std::shared_ptr<const HostModel> model = c::models().get(handle, what);
    const std::shared_lock lock(model->mutex());
    use(*model);
  });
}

// Calls `use(model)` while no other thread uses the model; `collective`: nor its group.
template <class Use>
tandem_status change_model(tandem_model* handle, const char* what, bool collective,
                           const Use& use) {
  return guarded([&] {
    const std::shared_ptr<HostModel> model = c::models().get(handle, what);
    const std::unique_lock lock(model->mutex());
    const CollectiveLock group(collective ? model->group().get() : nullptr);
    use(*model);
  });
}

}  // namespace
}  // namespace tandem::c

using namespace tandem;
using namespace tandem::c;

tandem_status tandem_set_threads(int32_t threads) {
  return guarded([&] {
    if (threads < 0)
      fail<InvalidArgumentError>("[set_threads] expected at least 0 threads, got {}", threads);
    config::set_intra_op_parallelism_threads(threads);
  });
}

tandem_status tandem_set_seed(int64_t seed) {
  return guarded([&] { random::set_seed(static_cast<std::uint64_t>(seed)); });
}

tandem_status tandem_set_replica_invariant_parts(int32_t parts) {
  return guarded([&] { config::set_replica_invariant_parts(parts); });
}

tandem_status tandem_model_create(const char* definition, tandem_group* group,
                                  tandem_model** model) {
  return add_model(group, model, "model_create", [&](const std::shared_ptr<Group>& ranks) {
    // Null is an error of the definition, of which other ranks learn.
    return std::make_shared<HostModel>(
        definition ? std::optional<std::string>(definition) : std::nullopt, ranks);
  });
}

tandem_status tandem_model_load(const char* path, tandem_group* group, tandem_model** model) {
  return add_model(group, model, "model_load", [&](const std::shared_ptr<Group>& ranks) {
    return HostModel::load(path, ranks);
  });
}

tandem_status tandem_model_save(const tandem_model* model, const char* path) {
  return guarded([&] {
    const std::shared_ptr<HostModel> saved = c::models().get(model, "model_save");
    const std::unique_lock lock(saved->mutex());  // it may make the optimizer's slots
    saved->save(&required(path, "model_save", "a path"));
  });
}

tandem_status tandem_model_free(tandem_model* model) {
  return guarded([&] { c::models().remove(model, "model_free"); });
}

tandem_status tandem_model_spec(const tandem_model* model, int32_t output, tandem_array* spec) {
  return with_model(model, "model_spec", [&](const HostModel& found) {
    found.spec(output, required(spec, "model_spec", "a pointer for the array"));
  });
}

tandem_status tandem_model_get(const tandem_model* model, const char* name, double* value) {
  return with_model(model, "model_get", [&](const HostModel& found) {
    double& result = required(value, "model_get", "a pointer for the value");
    result = found.get(&required(name, "model_get", "a name"));
  });
}

tandem_status tandem_model_set(tandem_model* model, const char* name, double value) {
  return change_model(model, "model_set", false, [&](HostModel& found) {
    found.set(&required(name, "model_set", "a name"), value);
  });
}

tandem_status tandem_model_read(const tandem_model* model, const char* weight, tandem_array* to) {
  return with_model(model, "model_read", [&](const HostModel& found) {
    const Variable variable = found.weight(&required(weight, "model_read", "a name"), "model_read");
    const HostArray array(to, "model_read", "to");
    array.expect(variable.shape());
    array.expect_writable();
    array.write(variable.value());
  });
}

tandem_status tandem_model_write(tandem_model* model, const char* weight,
                                 const tandem_array* from) {
  return change_model(model, "model_write", false, [&](HostModel& found) {
    found.learner()->expect_untrained("model_write");
    Variable variable = found.weight(&required(weight, "model_write", "a name"), "model_write");
    const HostArray array(from, "model_write", "from");
    array.expect(variable.shape());
    if (!array.floating()) array.reject("expected float32 or float64, got integers");
    variable.assign(array.read(variable.dtype()));
  });
}

tandem_status tandem_model_observe(tandem_model* model, const tandem_array* x,
                                   const tandem_array* y) {
  return change_model(model, "model_observe", true, [&](HostModel& found) { found.observe(x, y); });
}

tandem_status tandem_train(tandem_model* model, const tandem_array* x, const tandem_array* y,
                           const tandem_array* weight, double* loss) {
  return tandem_train_multi(model, 1, x, 1, y, weight, loss);
}

tandem_status tandem_train_multi(tandem_model* model, int32_t inputs, const tandem_array* x,
                                 int32_t outputs, const tandem_array* y, const tandem_array* weight,
                                 double* loss) {
  return change_model(model, "train", true, [&](HostModel& found) {
    const double mean = found.train({x, inputs}, {y, outputs}, weight);
    if (loss) *loss = mean;
  });
}

tandem_status tandem_evaluate(tandem_model* model, const tandem_array* x, const tandem_array* y,
                              double* loss) {
  return tandem_evaluate_multi(model, 1, x, 1, y, loss);
}

tandem_status tandem_evaluate_multi(tandem_model* model, int32_t inputs, const tandem_array* x,
                                    int32_t outputs, const tandem_array* y, double* loss) {
  return change_model(model, "evaluate", true, [&](HostModel& found) {
    const double mean = found.evaluate({x, inputs}, {y, outputs});
    if (loss) *loss = mean;
  });
}

tandem_status tandem_predict(const tandem_model* model, const tandem_array* x, tandem_array* y) {
  return tandem_predict_multi(model, 1, x, 1, y);
}

tandem_status tandem_predict_multi(const tandem_model* model, int32_t inputs, const tandem_array* x,
                                   int32_t outputs, tandem_array* y) {
  return with_model(model, "predict", [&](const HostModel& found) {
    found.predict({x, inputs}, {y, outputs});
  });
}

tandem_status tandem_backward(tandem_model* model, const tandem_array* x, const tandem_array* dy,
                              int32_t train, tandem_array* dx) {
  return change_model(model, "backward", train != 0,
                      [&](HostModel& found) { found.backward(x, dy, train != 0, dx); });
}
