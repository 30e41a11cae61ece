// Steps of a learner in the replica-invariant mode: the ranks' examples are parts of one batch.
#include "core/status.h"
#include "online/learner.h"
#include "op/context.h"
#include "runtime/replica_invariance.h"
#include "sync/parts.h"
#include "sync/tree_sum.h"
#include "tandem/array.h"
#include "tandem/autodiff.h"
#include "tandem/math.h"
#include "train/model_impl.h"

namespace tandem::online {

int Learner::Impl::parts_of_rank() const {
  return invariant_parts() > 0 ? parts_per_replica(ranks()) : 1;
}

void Learner::Impl::expect_parts(const char* what,
                                 const std::vector<std::vector<double>>& examples) const {
  if (invariant_parts() == 0) return;
  const auto first = static_cast<std::int64_t>(examples[0][0]);
  for (std::size_t rank = 0; rank < examples.size(); ++rank) {
    const auto mine = static_cast<std::int64_t>(examples[rank][0]);
    if (mine == first && mine > 0 && mine % parts_of_rank() == 0) continue;
    fail<InvalidArgumentError>(
        "[{}] x: expected equally many examples on all ranks in the replica-invariant mode, and a "
        "multiple of the {} parts of a rank; rank 0 has {}, rank {} has {}",
        what, parts_of_rank(), first, rank, mine);
  }
}

// `step` calls backward() if it is training. An error of one rank is thrown on all of them.
Learner::Impl::Parts Learner::Impl::over_parts(
    const char* what, bool training, const std::vector<Tensor>& examples,
    const std::function<double(const data::Example& part)>& step) {
  std::vector<double> mine;
  const auto run = [&](const data::Example& part) {
    mine.push_back(step(part));
    return std::vector<Tensor>();
  };
  Parts all;
  const auto agree = [&](const std::function<void()>& local) {
    const auto numbers =
        exchange(options_.group, what, static_cast<std::size_t>(parts_of_rank()), [&] {
          local();
          return mine;
        });
    for (const std::vector<double>& rank : numbers)
      all.numbers.insert(all.numbers.end(), rank.begin(), rank.end());
  };
  if (!training) {
    const std::int64_t size = examples[0].dim(0) / parts_of_rank();
    agree([&] {
      for (std::int64_t part = 0; part < parts_of_rank(); ++part) {
        std::vector<Tensor> rows;
        for (const Tensor& component : examples)
          rows.push_back(component[Slice(part * size, (part + 1) * size)]);
        run(data::Example(rows));
      }
    });
    return all;
  }
  model_.zero_grad();
  const std::vector<Variable> variables = model_.trainable_variables();
  if (averaged_) {
    averaged_->for_each_part(data::Example(examples), run, agree);
    for (const Variable& variable : variables) all.gradients.push_back(variable.grad());
    return all;
  }
  std::vector<TreeSum> sums(variables.size());
  agree([&] {
    sum_over_parts(examples, nullptr, [&](const std::vector<Tensor>& part) {
      run(data::Example(part));
      for (std::size_t i = 0; i < sums.size(); ++i) sums[i].add(variables[i].grad());
      model_.zero_grad();
      return std::vector<Tensor>();
    });
  });
  const NoGradScope no_gradients;
  for (TreeSum& sum : sums) {
    const Tensor total = sum.total();
    all.gradients.push_back(total.defined() ? total / static_cast<double>(invariant_parts())
                                            : total);
  }
  return all;
}

double Learner::Impl::mean_loss_by_parts(const char* what, bool training,
                                         const std::function<Batch()>& local) {
  Batch batch;
  expect_parts(what, exchange(options_.group, what, 1, [&] {
                 expect_optimizer(what);
                 if (training) expect_untrained(what);
                 batch = local();
                 return std::vector<double>{static_cast<double>(batch.examples)};
               }));
  std::vector<Tensor> examples = batch.x;
  examples.insert(examples.end(), batch.y.begin(), batch.y.end());
  if (batch.weight.defined()) examples.push_back(batch.weight);
  const auto parts = static_cast<double>(invariant_parts());
  const bool sum = sums_losses();
  Parts all = over_parts(what, training, examples, [&](const data::Example& part) {
    const std::span<const Tensor> tensors = part.components();
    const std::size_t inputs = batch.x.size();
    const auto results = model_.call_all(tensors.first(inputs), CallOptions{.training = training});
    const Scoped mean_of_part(context.replica, nullptr);  // not of the batch of all replicas
    const Tensor of =
        loss(tensors.subspan(inputs), results, batch.weight.defined() ? tensors.back() : Tensor());
    // Gradients are averaged over the parts.
    if (training) model_.optimizer().scale_loss(sum ? of * parts : of).backward();
    return of.item();
  });
  if (training) update(std::move(all.gradients), 0);
  double total = 0.0;
  for (const double loss : all.numbers) total += loss;
  return sum ? total : total / parts;
}

Tensor Learner::Impl::backward_by_parts(const char* what, bool wanted,
                                        const std::function<GivenGradient()>& local) {
  GivenGradient given;
  expect_parts(
      what, exchange(options_.group, what, 1, [&] {
        expect_optimizer(what);
        expect_untrained(what);
        given = local();
        return std::vector<double>{given.x.defined() ? static_cast<double>(given.x.dim(0)) : 0.0};
      }));
  // Gradients are averaged over the parts, but are to be summed.
  const double factor = invariant_parts() * model_.optimizer().loss_scale();
  std::vector<Tensor> gradients;
  Parts all = over_parts(what, true, {given.x, given.dy}, [&](const data::Example& part) {
    Tensor inputs = part[0].detach();
    if (wanted) inputs.set_requires_grad();
    const Tensor result = model_(inputs, CallOptions{.training = true});
    result.backward(cast(part[1], result.dtype()) * factor);
    if (wanted) gradients.push_back(inputs.grad());
    return 0.0;
  });
  update(std::move(all.gradients), 0);
  return wanted ? concat(gradients, 0) / factor : Tensor();
}

}  // namespace tandem::online
