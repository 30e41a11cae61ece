// compile() for each output of a model, and what predict() returns.
#include <algorithm>
#include <set>

#include "core/status.h"
#include "train/functional.h"
#include "train/model_impl.h"

namespace tandem {
namespace {

std::string list_of_outputs(const std::vector<std::string>& names) {
  std::string list;
  for (const std::string& name : names)
    list += fmt::format("{}'{}'", list.empty() ? "" : ", ", name);
  return list.empty() ? "of which a model with one has none" : list;
}

// The values for each output. `what`: the option.
template <class Value>
std::vector<std::vector<Value>> values_by_output(const PerOutput<Value>& values,
                                                 const Model::Impl& model, const char* what) {
  const std::size_t count = model.num_outputs();
  std::vector<std::vector<Value>> result(count);
  const auto& items = values.items();
  if (values.of_each()) return std::vector<std::vector<Value>>(count, items.front().values);
  const bool by_place = std::ranges::all_of(items, [](const auto& i) { return i.output.empty(); });
  if (by_place && count > 1 && !items.empty() && items.size() != count)
    fail<InvalidArgumentError>(
        "[compile] For a model with multiple outputs, when providing `{}` as a list, it should "
        "have as many entries as the model has outputs: expected {}, got {}",
        what, count, items.size());
  for (std::size_t i = 0; i < items.size(); ++i) {
    std::size_t output = count == 1 ? 0 : i;
    if (!by_place) {
      const auto found = std::ranges::find(model.output_names, items[i].output);
      if (found == model.output_names.end())
        fail<InvalidArgumentError>("[compile] {} expected names of outputs, {}, got '{}'", what,
                                   list_of_outputs(model.output_names), items[i].output);
      output = static_cast<std::size_t>(found - model.output_names.begin());
    }
    result[output].insert(result[output].end(), items[i].values.begin(), items[i].values.end());
  }
  return result;
}

// The value of an output, of which there may be one.
template <class Value>
Value one_of(const std::vector<Value>& values, const char* what, Value otherwise) {
  if (values.size() > 1)
    fail<InvalidArgumentError>("[compile] {} expected one value of an output, got {}", what,
                               values.size());
  return values.empty() ? otherwise : values.front();
}

void check_loss(const losses::Loss& loss) {
  loss.require_known();
  if (loss.reduction() == losses::Reduction::kNone)
    fail<InvalidArgumentError>(
        "[compile] loss '{}' has reduction kNone, expected a reduction to a scalar", loss.name());
}

}  // namespace

void Model::Impl::compile_outputs(const CompileOptions& options) {
  const auto of_losses = values_by_output(options.loss, *this, "loss");
  const auto of_weights = values_by_output(options.loss_weights, *this, "loss_weights");
  std::vector<OutputLoss> new_losses;
  StepReport new_report;
  const auto in_logs = [&](std::size_t output, const std::string& name) {
    return output_names.empty() ? name : output_names[output] + '_' + name;
  };
  const auto is_given = [](const auto& of_output) {
    return std::ranges::any_of(of_output, &losses::Loss::defined);
  };
  const bool has_loss = std::ranges::any_of(of_losses, is_given);
  for (std::size_t i = 0; i < num_outputs() && has_loss; ++i) {
    OutputLoss& made = new_losses.emplace_back(OutputLoss{
        one_of(of_losses[i], "loss", losses::Loss()), one_of(of_weights[i], "loss_weights", 1.0)});
    if (made.loss.defined()) check_loss(made.loss);
    if (!made.loss.defined() || output_names.empty()) continue;
    new_report.names.push_back(in_logs(i, "loss"));
    new_report.metrics.push_back(metrics::Mean(new_report.names.back()));
  }
  std::vector<OutputMetric> new_metrics;
  for (const bool weighted : {false, true}) {
    const auto by_output =
        weighted ? values_by_output(options.weighted_metrics, *this, "weighted_metrics")
                 : values_by_output(options.metrics, *this, "metrics");
    for (std::size_t i = 0; i < by_output.size(); ++i)
      for (const metrics::Metric& metric : by_output[i]) {
        static_cast<void>(metric.base());  // throws for an unknown name
        new_metrics.push_back({metric, i, weighted, in_logs(i, metric.name())});
        new_report.names.push_back(new_metrics.back().name);
        new_report.metrics.push_back(metric);
      }
  }
  std::set<std::string> names = {"loss"};
  for (const std::string& name : new_report.names)
    if (!names.insert(name).second)
      fail<InvalidArgumentError>(
          "[compile] expected metrics of unique names other than 'loss', got two of '{}'", name);
  losses = std::move(new_losses);
  metrics = std::move(new_metrics);
  reported = std::move(new_report);
}

ModelTensors::ModelTensors(std::initializer_list<std::pair<std::string, Tensor>> tensors)
    : ModelTensors(std::vector<std::pair<std::string, Tensor>>(tensors)) {}
ModelTensors::ModelTensors(const std::map<std::string, Tensor>& tensors)
    : ModelTensors(std::vector<std::pair<std::string, Tensor>>(tensors.begin(), tensors.end())) {}
ModelTensors::ModelTensors(const std::vector<std::pair<std::string, Tensor>>& tensors)
    : TensorList(std::span<const Tensor>()), tensors_(std::make_shared<std::vector<Tensor>>()) {
  for (const auto& [name, tensor] : tensors) {
    names_.push_back(name);
    tensors_->push_back(tensor);
  }
  static_cast<TensorList&>(*this) = TensorList(std::span<const Tensor>(*tensors_));
}

std::vector<Tensor> ModelTensors::in_order(const std::vector<std::string>& names,
                                           const char* what) const {
  if (names_.empty()) return {begin(), end()};
  std::vector<Tensor> ordered;
  for (const std::string& name : names) {
    const auto found = std::ranges::find(names_, name);
    if (found != names_.end())
      ordered.push_back((*tensors_)[static_cast<std::size_t>(found - names_.begin())]);
  }
  if (names.empty() || ordered.size() != names.size() || names_.size() != names.size())
    fail<InvalidArgumentError>("[Model] expected a tensor for each {}: {}; got {}", what,
                               names.empty() ? "here they have no names" : list_of_outputs(names),
                               list_of_outputs(names_));
  return ordered;
}

const std::vector<std::string>& Model::output_names() const {
  return impl_of(*this, "output_names").output_names;
}

std::vector<Tensor> Model::call_all(ModelTensors inputs) const {
  return call_all(inputs, impl_of(*this, "call_all").layer.base().default_options());
}

Predictions::Predictions(std::vector<Tensor> outputs)
    : Tensor(outputs.size() == 1 ? outputs.front() : Tensor()), outputs_(std::move(outputs)) {}

Tensor Predictions::operator[](std::int64_t index) const {
  if (outputs_.size() == 1) return Tensor::operator[](index);
  const auto count = static_cast<std::int64_t>(outputs_.size());
  if (index < -count || index >= count)
    fail<OutOfRangeError>("[predict] expected the index of an output in [{}, {}), got {}", -count,
                          count, index);
  return outputs_[static_cast<std::size_t>(index < 0 ? index + count : index)];
}

}  // namespace tandem
