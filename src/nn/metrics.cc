// Metric: its sums, its value and metrics of users' classes.
#include "tandem/metrics.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
#include <mutex>
#include <ostream>
#include <utility>

#include "core/bytes.h"
#include "core/mutex.h"
#include "device/device_manager.h"
#include "nn/naming.h"
#include "nn/nested_sums.h"
#include "nn/targets.h"
#include "op/context.h"
#include "runtime/placement.h"
#include "runtime/replica_context.h"
#include "runtime/replica_invariance.h"
#include "runtime/trace.h"
#include "runtime/variable_copies.h"
#include "runtime/variable_impl.h"
#include "sync/tree_sum.h"
#include "tandem/array.h"
#include "tandem/autodiff.h"
#include "tandem/creation.h"
#include "tandem/math.h"

namespace tandem::metrics {
namespace {

// A value of result() of a user's class as a number.
double number_of(const std::string& name, const Tensor& result) {
  if (!result.defined() || result.size() != 1)
    fail<InvalidArgumentError>(
        "[metric '{}'] expected a scalar from result(), got {}", name,
        result.defined() ? "shape " + result.shape().to_string() : "an undefined tensor");
  return result.item();
}

}  // namespace

// The sums so far; of an object of a user's class, its variables instead. Each device that
// contributes statistics has its own, so that adding neither
// waits for a device nor copies between devices. In the replica-invariant mode, each part has its
// own.
struct Metric::State {
  std::string name;
  std::shared_ptr<const MetricBase> base;  // null for an unknown name and for a user's object
  std::shared_ptr<WorkerCollectives>
      workers;  // the other processes with sums; null if there are none
  mutable Mutex mutex{"metric"};
  // By part (ReplicaContext::part) and device.
  std::map<std::pair<int, std::string>, std::vector<Tensor>> sums;
  // By part and replica: the sums of updates in traced functions, which assign to them in each run.
  std::map<std::pair<int, std::string>, std::vector<Variable>> traced;
  std::vector<Variable> weights;  // of a user's object
  std::vector<Tensor> initial;    // their values
};

namespace {

void add_to(std::vector<Tensor>& sums, const std::vector<Tensor>& addends) {
  sums.resize(addends.size());
  for (std::size_t i = 0; i < addends.size(); ++i) {
    const Tensor addend = cast(addends[i].detach(), float64);
    sums[i] = sums[i].defined() ? sums[i] + addend : addend;
  }
}

// A metric of a user's class: the statistics are the variables of add_weight() after update_state()
// where they were 0 before, and the statistics of the metrics that it updates. Both are copies of
// the calling thread, so that replicas and traces do not change the object.
class ObjectMetric final : public MetricBase {
 public:
  ObjectMetric(std::shared_ptr<Metric> object, std::shared_ptr<const Metric::State> state)
      : object_(std::move(object)), state_(std::move(state)) {}

  std::vector<Tensor> statistics(const Tensor& y_true, const Tensor& y_pred,
                                 const Tensor& sample_weight) const override {
    NoGradScope no_grad;
    VariableCopies copies;
    for (const Variable& weight : state_->weights)
      copies.add(weight.impl(), zeros(weight.shape(), {.dtype = weight.dtype()}));
    NestedSums nested;
    {
      const Scoped copies_scope(context.copies, &copies);
      const Scoped nested_scope(context.nested_sums, &nested);
      object_->update_state(y_true, y_pred, sample_weight);
    }
    std::vector<Tensor> result;
    for (const Variable& weight : state_->weights)
      result.push_back(cast(copies.at(weight.impl()), float64));
    for (std::vector<Tensor>& sums : in_order(nested))
      result.insert(result.end(), sums.begin(), sums.end());
    if (result.empty())
      fail<FailedPreconditionError>(
          "[metric '{}'] update_state() keeps nothing that fit() can sum: expected variables of "
          "add_weight(), or other metrics, got none",
          state_->name);
    return result;
  }

  double result(const std::vector<Tensor>& sums) const override {
    VariableCopies copies;
    std::size_t next = 0;
    for (std::size_t i = 0; i < state_->weights.size(); ++i) {
      const Tensor& initial = state_->initial[i];
      copies.add(state_->weights[i].impl(),
                 cast(cast(initial.cpu(), float64) + sums.at(next++), initial.dtype()));
    }
    NestedSums nested;
    {
      const std::lock_guard lock(mutex_);
      for (const Nested& metric : nested_) {
        nested.entries.push_back({metric.metric, {}, {}});
        for (std::size_t i = 0; i < metric.size; ++i)
          nested.entries.back().sums.push_back(sums.at(next++));
      }
    }
    if (next != sums.size())
      fail<FailedPreconditionError>(
          "[metric '{}'] expected {} statistics, got {}: call update_state() before result()",
          state_->name, next, sums.size());
    const Scoped copies_scope(context.copies, &copies);
    const Scoped nested_scope(context.nested_sums, &nested);
    return number_of(state_->name, static_cast<detail::MetricResult&>(*object_).result());
  }

 private:
  struct Nested {
    const Metric::State* metric;  // a member of the object
    std::size_t size;             // the number of its statistics
  };

  // The statistics in the order of the first call, which all calls have.
  std::vector<std::vector<Tensor>> in_order(NestedSums& nested) const {
    const std::lock_guard lock(mutex_);
    if (nested_.empty())
      for (const NestedSums::Entry& entry : nested.entries)
        nested_.push_back({entry.state, entry.sums.size()});
    std::vector<std::vector<Tensor>> result;
    for (const Nested& metric : nested_)
      if (NestedSums::Entry* entry = nested.find(*metric.metric))
        result.push_back(std::move(entry->sums));
    if (result.size() != nested_.size() || nested.entries.size() != nested_.size())
      fail<UnimplementedError>(
          "[metric '{}'] update_state() updated {} metrics, expected the {} of its first call",
          state_->name, nested.entries.size(), nested_.size());
    return result;
  }

  std::shared_ptr<Metric> object_;
  std::shared_ptr<const Metric::State> state_;
  mutable Mutex mutex_{"metric"};  // guards nested_
  mutable std::vector<Nested> nested_;
};

// Adds to variables that runs of the function that is traced assign to.
void add_in_runs(std::vector<Variable>& sums, const std::vector<Tensor>& addends,
                 const std::string& name) {
  if (!context.trace)
    fail<UnimplementedError>(
        "[metric '{}'] expected an update in eager code or in a td::function, got one in the graph "
        "of a session: fetch the tensors, and update the metric with their values",
        name);
  for (std::size_t i = sums.size(); i < addends.size(); ++i) {
    const OutsideTrace at_once;
    const Scoped<VariableCreator*> creator(context.creator, nullptr);
    sums.emplace_back(zeros(addends[i].shape(), {.dtype = float64}),
                      VariableOptions{.trainable = false, .name = name});
  }
  for (std::size_t i = 0; i < addends.size(); ++i)
    sums[i].assign_add(cast(addends[i].detach(), float64));
}

// Values that are not known while a function is traced.
void expect_eager(const char* what, const std::string& name) {
  if (context.graph)
    fail<FailedPreconditionError>(
        "[metric '{0}'] {1}() was called in a traced function, which updates the metric when it "
        "runs: call {1}() outside of it",
        name, what);
}

}  // namespace

Metric::Metric(std::string name, std::shared_ptr<const MetricBase> base)
    : state_(std::make_shared<State>()) {
  state_->name = std::move(name);
  state_->base = std::move(base);
  if (const VariableCreator* creator = VariableCreator::current())
    state_->workers = creator->workers();
}

namespace {

using Factory = Metric (*)(std::string name);
constexpr NamedEntry<Factory> kTable[] = {
    {"accuracy", [](std::string n) -> Metric { return Accuracy(std::move(n)); }},
    {"acc", [](std::string n) -> Metric { return Accuracy(std::move(n)); }},
    {"sparse_categorical_accuracy",
     [](std::string n) -> Metric { return SparseCategoricalAccuracy(std::move(n)); }},
    {"categorical_accuracy",
     [](std::string n) -> Metric { return CategoricalAccuracy(std::move(n)); }},
    {"binary_accuracy", [](std::string n) -> Metric { return BinaryAccuracy(0.5, std::move(n)); }},
    {"top_k_categorical_accuracy",
     [](std::string n) -> Metric { return TopKCategoricalAccuracy(5, std::move(n)); }},
    {"sparse_top_k_categorical_accuracy",
     [](std::string n) -> Metric { return SparseTopKCategoricalAccuracy(5, std::move(n)); }},
    {"mean_squared_error", [](std::string n) -> Metric { return MeanSquaredError(std::move(n)); }},
    {"mse", [](std::string n) -> Metric { return MeanSquaredError(std::move(n)); }},
    {"root_mean_squared_error",
     [](std::string n) -> Metric { return RootMeanSquaredError(std::move(n)); }},
    {"mean_absolute_error",
     [](std::string n) -> Metric { return MeanAbsoluteError(std::move(n)); }},
    {"mae", [](std::string n) -> Metric { return MeanAbsoluteError(std::move(n)); }},
    {"precision", [](std::string n) -> Metric { return Precision(0.5, std::move(n)); }},
    {"recall", [](std::string n) -> Metric { return Recall(0.5, std::move(n)); }},
    {"auc", [](std::string n) -> Metric { return AUC(200, std::move(n)); }},
};

template <class T>
T& defined_state(const std::shared_ptr<T>& state) {
  if (!state) throw FailedPreconditionError("[Metric] an undefined metric was used");
  return *state;
}

}  // namespace

Metric from_name(std::string_view name) {
  return find_named(std::span<const NamedEntry<Factory>>(kTable), "metrics",
                    name)(std::string(name));
}

Metric::Metric(const char* name) : Metric(std::string(name)) {}
Metric::Metric(const std::string& name) : Metric(name, nullptr) {
  // Another name may be that of a derived class.
  if (std::ranges::find(kTable, std::string_view(name), &NamedEntry<Factory>::name) !=
      std::end(kTable))
    state_->base = from_name(name).state_->base;
}

void Metric::hold(std::shared_ptr<Metric> object, bool own) {
  if (!object) throw InvalidArgumentError("[Metric] expected a metric, got a null pointer");
  state_ = object->state_;
  // A pointer to a Metric may hold an object of a user's class.
  if (!own && (!state_ || state_->base)) return;
  if (!state_) object->state_ = state_ = std::make_shared<State>();
  auto held = std::make_shared<State>();
  held->name = state_->name.empty() ? "metric" : state_->name;
  held->workers = state_->workers;
  held->base = std::make_shared<ObjectMetric>(std::move(object), state_);
  state_ = std::move(held);
}

Variable Metric::add_weight(const MetricWeightOptions& options) {
  if (!state_) state_ = std::make_shared<State>();
  const Tensor initial = options.initializer(options.shape, options.dtype);
  VariableOptions of_variable;
  of_variable.name = options.name;
  of_variable.trainable = false;
  of_variable.synchronization = VariableSynchronization::kOnRead;
  of_variable.aggregation = VariableAggregation::kSum;
  Variable weight(initial, std::move(of_variable));
  state_->weights.push_back(weight);
  state_->initial.push_back(initial);
  return weight;
}

const std::string& Metric::name() const { return defined_state(state_).name; }
const MetricBase& Metric::base() const {
  const State& state = defined_state(state_);
  if (!state.base) static_cast<void>(from_name(state.name));  // throws
  return *state.base;
}

void Metric::update(const Tensor& y_true, const Tensor& y_pred, const Tensor& sample_weight) {
  const OnDeviceOf on(y_pred);
  std::vector<Tensor> statistics = this->statistics(y_true, y_pred, sample_weight);
  if (const ReplicaContext* context = ReplicaContext::current(); context && context->is_padding())
    for (Tensor& statistic : statistics) statistic = zeros_like(statistic);
  add_statistics(statistics);
}

std::vector<Tensor> Metric::statistics(const Tensor& y_true, const Tensor& y_pred,
                                       const Tensor& sample_weight) const {
  return base().statistics(y_true, at_least_float32(y_pred), sample_weight);
}

void Metric::add_statistics(const std::vector<Tensor>& statistics) {
  State& state = defined_state(state_);
  if (statistics.empty()) return;
  NoGradScope no_grad;
  if (context.nested_sums) {  // perhaps in a trace
    const OnDeviceOf on(statistics.front());
    NestedSums::Entry* entry = context.nested_sums->find(state);
    if (!entry)
      entry = &context.nested_sums->entries.emplace_back(
          NestedSums::Entry{&state, {}, context.nested_sums->in_step ? *this : Metric()});
    return add_to(entry->sums, statistics);
  }
  const ReplicaContext* replica = ReplicaContext::current();
  const int part = replica ? replica->part() : -1;
  if (context.graph) {
    const OnDeviceOf on(statistics.front());
    const std::lock_guard lock(state.mutex);
    const int id = replica ? replica->replica_id() : 0;
    return add_in_runs(state.traced[{part, std::to_string(id)}], statistics, state.name);
  }
  OnDevice on(impl_of(statistics.front()).device());
  const std::lock_guard lock(state.mutex);
  add_to(state.sums[{part, part < 0 ? statistics.front().device() : std::string()}], statistics);
}

void Metric::update_state(const Tensor& y_true, const Tensor& y_pred) {
  if (state_ && state_->base) return update(y_true, y_pred);
  update_state(y_true, y_pred, Tensor());
}

void Metric::update_state(const Tensor& y_true, const Tensor& y_pred, const Tensor& sample_weight) {
  // The own metric that may have overridden the other one.
  static thread_local const Metric* asked = nullptr;
  if (asked == this || (state_ && state_->base)) return update(y_true, y_pred, sample_weight);
  if (sample_weight.defined())
    fail<InvalidArgumentError>(
        "[metric '{}'] expected no sample weights, which update_state(y_true, y_pred) does not "
        "take: list it in metrics instead of weighted_metrics, or override the one with weights",
        name());
  const Scoped scope(asked, this);
  update_state(y_true, y_pred);
}

double Metric::operator()(const Tensor& y_true, const Tensor& y_pred, const Tensor& sample_weight) {
  update_state(y_true, y_pred, sample_weight);
  return value();
}

namespace {

// The sums over all workers. The workers exchange the shapes of their sums first, since a worker
// whose metric was never updated does not know them.
std::vector<Tensor> over_workers(WorkerCollectives& workers, std::vector<Tensor> mine,
                                 const std::string& name) {
  const std::string what = "result of metric " + name;
  std::string shapes;
  ByteWriter out(shapes);
  for (const Tensor& sum : mine) {
    out.add(static_cast<std::uint8_t>(sum.shape().rank()));
    for (const std::int64_t size : sum.shape().words()) out.add(size);
  }
  for (const std::string& theirs : workers.gather_bytes(shapes, what)) {
    if (!mine.empty()) break;
    for (ByteReader in("[Metric] a worker's list of shapes", theirs); in.left() > 0;) {
      Dims sizes;
      for (auto axes = in.number<std::uint8_t>(); axes > 0; --axes)
        sizes.push_back(in.number<std::int64_t>());
      mine.push_back(zeros(Shape(sizes), {.dtype = float64}));
    }
  }
  const ReduceOp op = invariant_parts() > 0 ? ReduceOp::kTreeSum : ReduceOp::kSum;
  for (Tensor& sum : mine) sum = workers.all_reduce(sum, op, what);
  return mine;
}

}  // namespace

double Metric::value() const {
  const State& state = defined_state(state_);
  NoGradScope no_grad;
  if (!state.base)  // an object of a user's class, which may override the one without const
    return number_of(state.name,
                     static_cast<detail::MetricResult&>(const_cast<Metric&>(*this)).result());
  if (context.nested_sums) {
    const NestedSums::Entry* entry = context.nested_sums->find(state);
    return entry ? state.base->result(entry->sums) : 0.0;
  }
  expect_eager("result", state.name);
  OnDevice on(DeviceManager::get().host());
  const std::lock_guard lock(state.mutex);
  std::vector<Tensor> totals;
  std::vector<std::vector<Tensor>> all;  // by statistic
  const auto collect = [&](const auto& of_places) {
    for (const auto& [place, sums] : of_places) {
      all.resize(sums.size());
      for (std::size_t i = 0; i < sums.size(); ++i)
        all[i].push_back(static_cast<Tensor>(sums[i]).cpu());
    }
  };
  collect(state.sums);
  collect(state.traced);
  for (const std::vector<Tensor>& values : all) totals.push_back(sum_of_copies(values));
  if (state.workers) totals = over_workers(*state.workers, std::move(totals), state.name);
  return totals.empty() ? 0.0 : state.base->result(totals);
}

Result Metric::value_or_stand_in() const {
  const State& state = defined_state(state_);
  NestedSums* const nested = context.nested_sums;
  if (!nested || !nested->in_step || !state.base) return value();
  const Tensor stand_in = constant(std::numeric_limits<double>::quiet_NaN(), {.dtype = float64});
  nested->stand_ins.push_back({stand_in, &state});
  return Result(stand_in);
}

double Result::value() const {
  if (stand_in_.defined())
    throw FailedPreconditionError(
        "[metrics] the value of result() is not known in train_step() and test_step(), which may "
        "run on several devices: return it from the step, which reports it by name");
  return value_;
}

Tensor Result::tensor() const {
  return stand_in_.defined() ? stand_in_ : constant(value_, {.dtype = float64});
}

std::ostream& operator<<(std::ostream& out, const Result& result) { return out << result.value(); }

void Metric::reset() {
  State& state = defined_state(state_);
  expect_eager("reset_state", state.name);
  const std::lock_guard lock(state.mutex);
  state.sums.clear();
  for (auto& [place, sums] : state.traced)
    for (Variable& sum : sums) sum.assign(zeros(sum.shape(), {.dtype = float64}));
}

void Metric::reset_state() {
  reset();
  for (std::size_t i = 0; i < state_->weights.size(); ++i)
    state_->weights[i].assign(state_->initial[i]);
}

Tensor detail::MetricResult::result() { return std::as_const(*this).result(); }

Tensor detail::MetricResult::result() const {
  const auto& metric = static_cast<const Metric&>(*this);
  static_cast<void>(metric.base());  // throws for an object of a user's class without result()
  return constant(metric.value(), {.dtype = float64});
}

}  // namespace tandem::metrics
