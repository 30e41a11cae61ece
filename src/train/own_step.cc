#include "train/own_step.h"

#include <algorithm>

#include "core/status.h"
#include "op/context.h"
#include "runtime/replica_context.h"
#include "tandem/array.h"
#include "tandem/autodiff.h"
#include "tandem/creation.h"
#include "tandem/math.h"

namespace tandem {
namespace {

thread_local OwnStep* running = nullptr;

std::string listed(const std::vector<std::string>& names) {
  std::string list;
  for (const std::string& name : names)
    list += fmt::format("{}'{}'", list.empty() ? "" : ", ", name);
  return list.empty() ? "none" : list;
}

}  // namespace

OwnStep* OwnStep::current() { return running; }

void OwnStep::add(const std::string& name, const Tensor& value, metrics::NestedSums& sums,
                  std::int64_t examples, StepReport& found, std::vector<Tensor>& statistics) const {
  const auto stand_in = std::ranges::find_if(
      sums.stand_ins, [&](const auto& each) { return each.tensor.same_as(value); });
  found.names.push_back(name);
  if (stand_in != sums.stand_ins.end()) {
    const metrics::NestedSums::Entry* entry = sums.find(*stand_in->state);
    if (!entry)
      fail<FailedPreconditionError>(
          "[{}] the step returned the result of a metric as '{}', and did not update the metric",
          what_, name);
    found.metrics.push_back(entry->metric);
    found.sizes.push_back(entry->sums.size());
    statistics.insert(statistics.end(), entry->sums.begin(), entry->sums.end());
    return;
  }
  if (!value.defined() || value.size() != 1)
    fail<InvalidArgumentError>(
        "[{}] expected a scalar or the result() of a metric as '{}' from the step, got {}", what_,
        name, value.defined() ? "shape " + value.shape().to_string() : "an undefined tensor");
  // A mean over the examples.
  found.metrics.push_back(metrics::Mean(name));
  found.sizes.push_back(2);
  const auto count = static_cast<double>(examples);
  statistics.push_back(reshape(cast(value.detach(), float64), Shape::scalar()) * count);
  statistics.push_back(full(Shape::scalar(), count, float64));
}

std::vector<Tensor> OwnStep::run(const data::Example& examples,
                                 const std::function<StepResults(const data::Example&)>& step,
                                 StepReport& report) {
  metrics::NestedSums sums;
  sums.in_step = true;
  StepResults results;
  {
    const Scoped of_metrics(context.nested_sums, &sums);
    const Scoped of_thread(running, this);
    results = step(examples);
  }
  NoGradScope no_grad;
  const Scoped tag(memory_tag, MemoryTag::kOther);
  StepReport found;
  std::vector<Tensor> statistics;
  for (const auto& [name, value] : results)
    add(name, value, sums, examples[0].size_word(0), found, statistics);
  const ReplicaContext* replica = ReplicaContext::current();
  if (replica && replica->is_padding())
    for (Tensor& statistic : statistics) statistic = zeros_like(statistic);
  if (replica && replica->local_replica_id() != 0) return statistics;
  if (report.names.empty()) {
    report = std::move(found);
  } else if (report.names != found.names || report.sizes != found.sizes) {
    fail<InvalidArgumentError>("[{}] expected the results of the first step, {}, got {}", what_,
                               listed(report.names), listed(found.names));
  }
  return statistics;
}

void OwnStep::add_loss(const Model::Impl& model, const BatchLoss& loss) {
  NoGradScope no_grad;
  metrics::Metric mean = model.mean_loss;
  mean.add_statistics(
      {loss.statistic(), full(Shape::scalar(), static_cast<double>(loss.examples()), float64)});
  has_loss_ = true;
}

StepResults OwnStep::update_metrics(const Model::Impl& model, TensorList targets,
                                    TensorList outputs, TensorList weights) const {
  StepResults results;
  if (has_loss_) results["loss"] = model.mean_loss.result();
  for (const auto& [of_model, output, weighted, name] : model.metrics) {
    metrics::Metric metric = of_model;
    metric.add_statistics(metric.statistics(targets[output], outputs[output].detach(),
                                            weighted ? weights[output] : Tensor()));
    results[name] = metric.result();
  }
  return results;
}

namespace {

OwnStep& current_step(const char* what) {
  OwnStep* const step = OwnStep::current();
  if (!step)
    fail<FailedPreconditionError>(
        "[{0}] expected a call by fit(), train_on_batch() or evaluate(), or by a {0}() that they "
        "call: outside of them call train_on_batch() or test_on_batch()",
        what);
  return *step;
}

void expect_one_output(const Model::Impl& model, const char* what) {
  if (model.num_outputs() > 1)
    fail<UnimplementedError>(
        "[{}] expected a model of one output, got {}: compute the loss of each with a losses::Loss",
        what, model.num_outputs());
}

}  // namespace

StepResults Model::train_step(const data::Example& data) {
  return data.size() == 2 ? train_step(data[0], data[1])
                          : current_step("train_step").run_built_in(data);
}
StepResults Model::train_step(const Tensor& x, const Tensor& y) {
  return current_step("train_step").run_built_in({x, y});
}
StepResults Model::test_step(const data::Example& data) {
  return data.size() == 2 ? test_step(data[0], data[1])
                          : current_step("test_step").run_built_in(data);
}
StepResults Model::test_step(const Tensor& x, const Tensor& y) {
  return current_step("test_step").run_built_in({x, y});
}

Tensor Model::compute_loss(const Tensor&, const Tensor& y, const Tensor& y_pred,
                           const Tensor& sample_weight) const {
  const Impl& impl = compiled_impl_of(*this, "compute_loss");
  expect_one_output(impl, "compute_loss");
  const std::span<const Tensor> weights(&sample_weight, 1);
  const BatchLoss loss(impl, {&y, 1}, {&y_pred, 1}, weights, "compute_loss");
  if (OwnStep* const step = OwnStep::current()) step->add_loss(impl, loss);
  return loss.to_minimize();
}

StepResults Model::compute_metrics(const Tensor&, const Tensor& y, const Tensor& y_pred,
                                   const Tensor& sample_weight) const {
  const Impl& impl = compiled_impl_of(*this, "compute_metrics");
  expect_one_output(impl, "compute_metrics");
  const auto list = [](const Tensor& tensor) { return std::span(&tensor, 1); };
  return current_step("compute_metrics")
      .update_metrics(impl, list(y), list(y_pred), list(sample_weight));
}

}  // namespace tandem
