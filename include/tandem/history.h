/// @file
/// The results of fit(), evaluate() and train_on_batch().
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace tandem {

/// Values by name, one per epoch. at() and [] of a temporary give the values themselves.
class HistoryValues : public std::map<std::string, std::vector<double>> {
 public:
  using std::map<std::string, std::vector<double>>::map;
  const HistoryValues& operator()() const { return *this; }  ///< themselves
  /// @{
  /// The values of this name, as of a map.
  const std::vector<double>& at(const std::string& name) const&;
  std::vector<double> at(const std::string& name) const&&;
  std::vector<double>& operator[](const std::string& name) &;
  std::vector<double> operator[](const std::string& name) &&;
  /// @}
};

/// Training history: per epoch "loss", the metrics and, with validation data, "val_loss", ... As
/// tf.keras.callbacks.History.
struct History {
  std::vector<std::int64_t> epoch{};  ///< numbers of the epochs
  HistoryValues history{};            ///< values by name, one per epoch
  /// @{
  /// The values of this name. Throws NotFoundError that lists the names.
  const std::vector<double>& at(const std::string& name) const&;
  std::vector<double> at(const std::string& name) const&& { return at(name); }
  const std::vector<double>& operator[](const std::string& name) const& { return at(name); }
  std::vector<double> operator[](const std::string& name) const&& { return at(name); }
  /// @}
  /// @{
  /// Whether there are values of this name, as in a map.
  bool contains(const std::string& name) const { return history.contains(name); }
  std::size_t count(const std::string& name) const { return history.count(name); }
  /// @}
  /// @{
  /// Iterates over the names and their values: `for (const auto& [name, values] : history)`.
  auto begin() { return history.begin(); }
  auto end() { return history.end(); }
  auto begin() const { return history.begin(); }
  auto end() const { return history.end(); }
  /// @}
};

/// The loss and the metrics by name. With one metric it can be taken apart, `auto [loss,
/// accuracy] = model.evaluate(x, y)`; of one without metrics it converts to the loss, as in Keras.
class LossAndMetrics : public std::map<std::string, double> {
 public:
  using std::map<std::string, double>::map;
  /// These values.
  LossAndMetrics(std::map<std::string, double> values)  // NOLINT: a map of values is one
      : std::map<std::string, double>(std::move(values)) {}
  /// @{
  /// The value of this name, which is added if it is missing.
  double& operator[](const std::string& name);
  double& operator[](const char* name);
  /// @}
  /// The loss. Throws InvalidArgumentError if there are metrics.
  operator double() const;  // NOLINT: implicit
  /// For Tandem's own code: the loss (0) or the metric (1). Throws InvalidArgumentError unless
  /// there is one metric.
  double part(std::size_t index) const;
};

/// The loss or the metric, for `auto [loss, accuracy] = model.evaluate(x, y)`. Throws
/// InvalidArgumentError unless there is one metric.
template <std::size_t I>
double get(const LossAndMetrics& values) {
  return values.part(I);
}

}  // namespace tandem

/// @cond
template <>
struct std::tuple_size<tandem::LossAndMetrics> : std::integral_constant<std::size_t, 2> {};
template <std::size_t I>
struct std::tuple_element<I, tandem::LossAndMetrics> {
  using type = double;
};
/// @endcond
