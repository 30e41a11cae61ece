#include "train/batch_trainer.h"

#include <iterator>
#include <optional>

#include "core/bytes.h"
#include "core/status.h"
#include "device/device_manager.h"
#include "nn/layer_tree.h"
#include "runtime/replica_context.h"
#include "runtime/replica_invariance.h"
#include "sync/parts.h"
#include "tandem/array.h"
#include "tandem/autodiff.h"
#include "tandem/creation.h"
#include "tandem/device.h"
#include "tandem/math.h"
#include "tensor/tensor_impl.h"
#include "train/batches_ahead.h"
#include "train/functional.h"
#include "train/own_model.h"
#include "train/own_step.h"

namespace tandem {

void check_batch(const Model::Impl& model, const data::Example& batch, std::size_t least,
                 std::size_t most, const std::string& what) {
  if (batch.size() < least || batch.size() > most)
    fail<InvalidArgumentError>(
        "[{}] expected elements of {} components (inputs, then targets, then perhaps sample "
        "weights), got {}",
        what, least == most ? std::to_string(least) : fmt::format("{} to {}", least, most),
        batch.size());
  for (std::size_t i = 0; i < model.input_shapes.size(); ++i) {
    const Shape& expected = model.input_shapes[i];
    if (expected.known() && batch[i].rank() > 0 && batch[i].rank() == expected.rank() - 1)
      fail<InvalidArgumentError>(
          "[{}] expected batches of inputs, shape {}, got shape {}, which is one example; batch() "
          "the dataset",
          what, expected.to_string(), batch[i].shape().to_string());
  }
  for (const Tensor& component : batch) {
    if (component.rank() < 1)
      fail<InvalidArgumentError>(
          "[{}] expected elements with a batch axis, got a scalar; batch() the dataset", what);
    if (component.size_word(0) != batch[0].size_word(0))
      fail<InvalidArgumentError>(
          "[{}] the components of a batch differ in their first axis: shapes {} and {}; if these "
          "are single examples, batch() the dataset",
          what, batch[0].shape().to_string(), component.shape().to_string());
  }
  if (batch[0].size_word(0) == 0)
    fail<InvalidArgumentError>("[{}] expected batches of at least one example, got 0", what);
}

void check_training_batch(const Model::Impl& model, const data::Example& batch,
                          const std::string& what) {
  const std::size_t outputs = model.num_outputs(), least = model.num_inputs + outputs;
  check_batch(model, batch, least, least + outputs, what);
  if (batch.size() > least + 1 && batch.size() < least + outputs)
    fail<InvalidArgumentError>(
        "[{}] expected sample weights for all outputs or for each of the {}, got {} tensors", what,
        outputs, batch.size() - least);
}

std::vector<GlobalBatch> take_batches(BatchSource& batches, std::int64_t count) {
  std::vector<GlobalBatch> taken;
  while (std::ssize(taken) < count) {
    std::optional<GlobalBatch> batch = batches.next();
    if (!batch) break;
    taken.push_back(std::move(*batch));
  }
  return taken;
}

void build_for(Model::Impl& model, const data::Dataset& data, const char* what) {
  if (model.layer.base().built()) return;
  const data::NextExample first = data.iterate().next();
  if (!first) fail<InvalidArgumentError>("[{}] the data is empty: it has no batches", what);
  check_batch(model, *first, model.num_inputs, first->size(), what);
  std::vector<Shape> shapes;
  for (std::size_t i = 0; i < model.num_inputs; ++i) {
    shapes.push_back((*first)[i].shape());
    shapes.back().set(0, -1);
  }
  const Scoped creator(context.creator, model.creator);
  model.build(std::move(shapes));
}

BatchTrainer::BatchTrainer(Model::Impl& model, std::string what, const Model& object)
    : model_(model),
      own_(model.own               ? &model.own->object()
           : has_own_class(object) ? const_cast<Model*>(&object)
                                   : nullptr),
      what_(std::move(what)),
      variables_(model.layer.trainable_variables()),
      runner_(model.runner ? model.runner : StepRunner::current()),
      parts_(invariant_parts() > 0 ? parts_per_replica(num_replicas()) : 1),
      statistics_({.replicas = runner_->num_local_replicas(), .parts = parts_},
                  runner_->workers()) {
  if (!own_) statistics_.report(model.reported, true);
  ByteWriter key(key_);
  key.add(own_ != nullptr);  // or Tandem's step, through another handle
  for (const Variable& variable : variables_)
    key.add(reinterpret_cast<std::uintptr_t>(&variable.impl()));
  // A frozen layer may compute a different function (dropout, batch norm), even without
  // trainable variables.
  for_each_layer(model.layer, [&](const LayerBase& layer) { key.add(layer.trainable()); });
}

BatchTrainer::BatchComponents BatchTrainer::components_of(const data::Example& batch) const {
  const std::vector<Tensor>& all = batch.components();
  const auto targets = all.begin() + static_cast<std::ptrdiff_t>(model_.num_inputs);
  const auto weights = targets + static_cast<std::ptrdiff_t>(model_.num_outputs());
  BatchComponents parts{{all.begin(), targets}, {targets, weights}, {weights, all.end()}};
  // None, one of each output, or one of all of them.
  parts.weights.resize(model_.num_outputs(),
                       parts.weights.size() == 1 ? parts.weights.front() : Tensor());
  return parts;
}

namespace {

std::unique_ptr<BatchSource> ahead(std::unique_ptr<BatchSource> batches) {
  return copied_ahead(std::move(batches),
                      !DeviceManager::get().devices(DeviceType::kGpu, "fit").empty());
}

}  // namespace

std::unique_ptr<BatchSource> BatchTrainer::batches(const data::Dataset& data,
                                                   const data::IterateOptions& options) const {
  return ahead(runner_->iterate(data, options, [this](const data::Example& batch) {
    // The step of a class of the user's takes what it likes.
    if (own_)
      check_batch(model_, batch, model_.num_inputs, batch.size(), what_);
    else
      check_training_batch(model_, batch, what_);
  }));
}

std::unique_ptr<BatchSource> BatchTrainer::batches_to_predict(const data::Dataset& data) const {
  return ahead(runner_->iterate(data, {}, [this](const data::Example& batch) {
    check_batch(model_, batch, model_.num_inputs, batch.size(), what_);
  }));
}

std::vector<Tensor> BatchTrainer::statistics_of(const BatchComponents& parts,
                                                const std::vector<Tensor>& outputs,
                                                const BatchLoss& loss) {
  NoGradScope no_grad;
  const Scoped tag(memory_tag, MemoryTag::kOther);
  std::vector<Tensor> result = {loss.statistic()};
  std::vector<std::size_t> sizes;
  for (std::size_t i = 0; i < model_.losses.size() && outputs.size() > 1; ++i) {
    if (!model_.losses[i].loss.defined()) continue;
    result.push_back(loss.statistic(i));
    result.push_back(full(Shape::scalar(), static_cast<double>(loss.examples()), float64));
    sizes.push_back(2);
  }
  for (const auto& [metric, output, weighted, name] : model_.metrics) {
    const auto statistics = metric.statistics(parts.targets[output], outputs[output].detach(),
                                              weighted ? parts.weights[output] : Tensor());
    sizes.push_back(statistics.size());
    for (const Tensor& statistic : statistics) result.push_back(cast(statistic, float64));
  }
  if (const ReplicaContext* context = ReplicaContext::current(); context && context->is_padding())
    for (Tensor& statistic : result) statistic = zeros_like(statistic);
  if (const ReplicaContext* context = ReplicaContext::current();
      !context || context->local_replica_id() == 0)
    model_.reported.sizes = std::move(sizes);  // the same on every replica
  return result;
}

int BatchTrainer::num_replicas() const {
  const std::shared_ptr<WorkerCollectives> workers = runner_->workers();
  return workers ? workers->num_replicas() : runner_->num_local_replicas();
}

void BatchTrainer::add_statistics(std::size_t replica, const distribute::BatchSplit& split,
                                  const std::vector<Tensor>& statistics, bool training) {
  std::vector<std::int64_t> examples = {split.counts[replica]};
  if (invariant_parts() > 0) {
    const std::shared_ptr<WorkerCollectives> workers = runner_->workers();
    const int first = workers ? workers->first_replica() : 0;
    examples.clear();
    for (const BatchPart& part :
         parts_of_replica(split.total, first + static_cast<int>(replica), num_replicas()))
      examples.push_back(part.examples);
    if (examples.empty()) examples.push_back(0);  // the statistics still have shapes
  }
  if (own_) statistics_.report(report_of(training), false);
  const std::vector<std::size_t>& sizes = report_of(training).sizes;
  auto next = statistics.begin();
  for (std::size_t part = 0; part < examples.size(); ++part) {
    const Tensor loss = *next++;
    std::vector<std::vector<Tensor>> metrics;
    for (std::size_t size : sizes) {
      metrics.emplace_back(next, next + static_cast<std::ptrdiff_t>(size));
      next += static_cast<std::ptrdiff_t>(size);
    }
    statistics_.add({static_cast<int>(replica), static_cast<int>(part)}, examples[part], loss,
                    metrics);
  }
}

void BatchTrainer::run(bool training, std::span<const GlobalBatch> batches,
                       const StepRunner::Step& step) {
  StepProgram& program = training ? *model_.train_step : *model_.test_step;
  auto waits = program.start(*runner_, batches, key_, step);
  for (std::size_t i = 0; i < batches.size(); ++i) {
    std::vector<std::size_t> replicas;
    for (std::size_t replica = 0; replica < batches[i].size(); ++replica)
      if (!batches[i][replica].empty()) replicas.push_back(replica);
    when_done([this, wait = std::move(waits[i]), replicas = std::move(replicas),
               split = batches[i].split(), training] {
      const StepProgram::Results results = wait();
      for (std::size_t j = 0; j < replicas.size(); ++j)
        add_statistics(replicas[j], split, results[j], training);
    });
  }
}

void BatchTrainer::when_done(std::function<void()> end) {
  started_.push_back(std::move(end));
  const RemoteSteps* remote = runner_->remote_steps();
  wait_for_all_but(remote ? remote->steps_ahead() : 0);
}

void BatchTrainer::wait_for_all_but(std::size_t ahead) {
  while (started_.size() > ahead) {
    const std::function<void()> end = std::move(started_.front());
    started_.pop_front();
    end();
  }
}

std::vector<Tensor> BatchTrainer::by_parts(const data::Example& share,
                                           const StepRunner::Step& step) const {
  if (invariant_parts() == 0) return step(share);
  const auto results =
      run_parts(share.components(), ReplicaContext::current(),
                [&](const std::vector<Tensor>& part) { return step(data::Example(part)); });
  std::vector<Tensor> all;
  for (const std::vector<Tensor>& result : results)
    all.insert(all.end(), result.begin(), result.end());
  const std::size_t width = results.front().size();
  const std::size_t size = width * static_cast<std::size_t>(parts_);
  while (all.size() < size) all.push_back(zeros_like(all[all.size() % width]));
  return all;
}

std::vector<Tensor> BatchTrainer::train_on(const data::Example& examples) {
  if (own_) return run_own_step(examples, true);
  const BatchComponents parts = components_of(examples);
  const std::vector<Tensor> outputs =
      call_all_outputs(model_.layer, parts.inputs, {.training = true});
  const BatchLoss loss(model_, parts.targets, outputs, parts.weights, what_);
  const Tensor minimized = loss.to_minimize();
  // Before the optimizer's step, so that an error of a metric leaves the model unchanged.
  std::vector<Tensor> statistics = statistics_of(parts, outputs, loss);
  minimize(minimized);
  return statistics;
}

std::vector<Tensor> BatchTrainer::test_on(const data::Example& examples) {
  NoGradScope no_grad;
  if (own_) return run_own_step(examples, false);
  const BatchComponents parts = components_of(examples);
  const std::vector<Tensor> outputs =
      call_all_outputs(model_.layer, parts.inputs, {.training = false});
  return statistics_of(parts, outputs,
                       BatchLoss(model_, parts.targets, outputs, parts.weights, what_));
}

void BatchTrainer::minimize(const Tensor& loss) {
  optimizers::Optimizer optimizer = model_.optimizer;
  optimizer.minimize(loss, variables_);
}

std::vector<Tensor> BatchTrainer::run_own_step(const data::Example& examples, bool training) {
  const std::function<StepResults(const data::Example&)> built_in =
      [&](const data::Example& batch) {
        check_training_batch(model_, batch, what_);
        const BatchComponents parts = components_of(batch);
        const std::vector<Tensor> outputs =
            call_all_outputs(model_.layer, parts.inputs, {.training = training});
        const BatchLoss loss(model_, parts.targets, outputs, parts.weights, what_);
        const Tensor minimized = training ? loss.to_minimize() : Tensor();
        OwnStep& step = *OwnStep::current();
        step.add_loss(model_, loss);
        StepResults results = step.update_metrics(model_, parts.targets, outputs, parts.weights);
        if (training) minimize(minimized);
        return results;
      };
  std::vector<Tensor> statistics =
      OwnStep(what_, built_in)
          .run(
              examples,
              [&](const data::Example& batch) {
                return training ? own_->train_step(batch) : own_->test_step(batch);
              },
              report_of(training));
  // The loss is one of the results.
  statistics.insert(statistics.begin(), full(Shape::scalar(), 0.0, float64));
  return statistics;
}

std::vector<Tensor> BatchTrainer::train_on_replica(const data::Example& examples) {
  return by_parts(examples, [this](const data::Example& part) { return train_on(part); });
}

void BatchTrainer::train(std::span<const GlobalBatch> batches) {
  run(true, batches, [this](const data::Example& examples) { return train_on_replica(examples); });
}

void BatchTrainer::test(std::span<const GlobalBatch> batches) {
  run(false, batches, [this](const data::Example& examples) {
    return by_parts(examples, [this](const data::Example& part) { return test_on(part); });
  });
}

void BatchTrainer::predict(std::span<const GlobalBatch> batches,
                           const std::function<void(std::vector<Tensor>)>& take) {
  std::vector<GlobalBatch> inputs(batches.begin(), batches.end());
  for (GlobalBatch& parts : inputs)
    for (std::size_t replica = 0; replica < parts.size(); ++replica)
      if (data::Example& part = parts[replica]; !part.empty())
        part = data::Example(std::vector<Tensor>(
            part.begin(), part.begin() + static_cast<std::ptrdiff_t>(model_.num_inputs)));
  const auto step = [&](const data::Example& examples) -> std::vector<Tensor> {
    NoGradScope no_grad;
    return call_all_outputs(model_.layer, examples.components(), {.training = false});
  };
  std::vector<std::function<StepProgram::Results()>> waits;
  // A model that is not compiled has no program for predict().
  if (model_.predict_step)
    waits = model_.predict_step->start(*runner_, inputs, key_, step);
  else
    for (const GlobalBatch& parts : inputs)
      waits.push_back([results = runner_->run(parts, step)] { return results; });
  for (std::size_t i = 0; i < inputs.size(); ++i)
    when_done([this, wait = std::move(waits[i]), take, parts = std::move(inputs[i])] {
      take(in_order(parts, wait()));
    });
}

std::vector<Tensor> BatchTrainer::in_order(const GlobalBatch& parts,
                                           const StepProgram::Results& results) const {
  NoGradScope no_grad;
  const DeviceScope host("/cpu:0");
  std::vector<Tensor> outputs;
  for (std::size_t output = 0; output < model_.num_outputs(); ++output) {
    std::vector<Tensor> shares;
    auto result = results.begin();
    for (std::size_t replica = 0; replica < parts.size(); ++replica) {
      if (parts[replica].empty()) continue;
      const Tensor share = (*result++)[output].cpu();
      shares.push_back(parts.split().counts[replica] > 0 ? share : slice_rows(share, 0, 0));
    }
    const Tensor mine = shares.size() == 1 ? shares.front() : concat(shares, 0);
    outputs.push_back(runner_->workers() ? runner_->workers()->gather(mine, 0, "predict") : mine);
  }
  return outputs;
}

}  // namespace tandem
