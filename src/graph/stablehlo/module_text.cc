#include "graph/stablehlo/module_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <vector>

#include "graph/stablehlo/builder.h"

namespace tandem::stablehlo {
namespace {

std::string symbol_of(const std::string& name) {
  std::string symbol = name;
  for (char& c : symbol)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  if (symbol.empty() || std::isdigit(static_cast<unsigned char>(symbol[0])) != 0)
    symbol.insert(0, 1, '_');
  return symbol;
}

std::vector<Type> parameter_types(const Module& module) {
  std::vector<Type> types;
  for (const Parameter& parameter : module.parameters) types.emplace_back(parameter.spec);
  return types;
}

std::vector<Type> result_types(const Module& module) {
  std::vector<Type> types;
  for (const TensorType& spec : module.fetches) types.emplace_back(spec);
  for (const std::size_t parameter : module.written)
    types.emplace_back(module.parameters[parameter].spec);
  types.insert(types.end(), module.num_counts(), Type(Element::kI64, Shape::scalar()));
  return types;
}

struct FunctionText {
  std::string_view name, visibility;
  std::vector<Type> arguments, results;
  // Arguments, whose memory is that of the results from `first_written` on.
  std::vector<std::size_t> donated;
  std::size_t first_written = 0;
  std::string body;
};

std::string text_of(const FunctionText& function) {
  std::string arguments, results;
  for (std::size_t i = 0; i < function.arguments.size(); ++i) {
    const auto donated = std::find(function.donated.begin(), function.donated.end(), i);
    std::string donation;
    if (donated != function.donated.end())
      donation = fmt::format(
          " {{tf.aliasing_output = {} : i32}}",
          function.first_written + static_cast<std::size_t>(donated - function.donated.begin()));
    arguments +=
        fmt::format("{}%arg{}: {}{}", i > 0 ? ", " : "", i, function.arguments[i].text(), donation);
  }
  for (const Type& type : function.results) results += (results.empty() ? "" : ", ") + type.text();
  return fmt::format("func.func {} @{}({}) -> ({}) {{\n{}}}\n", function.visibility, function.name,
                     arguments, results, function.body);
}

std::string in_module(const std::string& name, const Module& module, const std::string& functions) {
  return fmt::format(
      "module @{} attributes {{mhlo.num_replicas = {} : i32, mhlo.num_partitions = 1 : i32}} {{\n"
      "{}}}\n",
      name, module.num_replicas, functions);
}

Type stacked(int runs, const Type& type) {
  return {type.element, stablehlo::stacked(runs, type.shape)};
}

// Builds the function that calls "step" in a loop.
class Loop {
 public:
  Loop(const Module& module, int times) : module_(module), times_(times) {}

  FunctionText build() {
    FunctionText function{.name = "main", .visibility = "public"};
    add_arguments(function);
    const std::vector<Value> results = results_of(run_loop());
    for (const Value& result : results) function.results.push_back(result.type);
    function.first_written = static_cast<std::size_t>(times_) * module_.fetches.size();
    build_.add("func.return", results, {}, "", {});
    function.body = build_.take();
    return function;
  }

 private:
  Value add_argument(FunctionText& function, const Type& type) {
    function.arguments.push_back(type);
    return {fmt::format("%arg{}", function.arguments.size() - 1), type};
  }

  void add_arguments(FunctionText& function) {
    std::vector<std::size_t> argument_of;  // by parameter: the first one
    for (const Parameter& parameter : module_.parameters) {
      const Type type(parameter.spec);
      argument_of.push_back(function.arguments.size());
      if (parameter.kind != Parameter::Kind::kFeed) {
        outside_.push_back(
            add_argument(function, differs_per_run(parameter.kind) ? stacked(times_, type) : type));
        continue;
      }
      std::vector<Value> runs;
      for (int run = 0; run < times_; ++run)
        runs.push_back(build_.reshape(add_argument(function, type), stacked(1, type).shape));
      outside_.push_back(build_.concatenate(runs, 0));
    }
    for (const std::size_t parameter : module_.written)
      function.donated.push_back(argument_of[parameter]);
  }

  // The loop's variables: the number of the run, the fetches of all runs, the written variables.
  std::vector<Value> run_loop() {
    const Type counter(Element::kI32, Shape::scalar());
    std::vector<Value> start = {build_.integer(0, counter)};
    for (const TensorType& fetch : module_.fetches)
      start.push_back(build_.constant(0, stacked(times_, Type(fetch))));
    for (const std::size_t parameter : module_.written) start.push_back(outside_[parameter]);
    std::vector<Type> types;
    for (const Value& value : start) types.push_back(value.type);
    const std::vector<std::string> regions = {
        build_.region(types,
                      [&](std::span<const Value> given) -> std::vector<Value> {
                        const auto end = static_cast<std::uint64_t>(times_);
                        return {build_.compare("LT", given[0], build_.integer(end, counter))};
                      }),
        build_.region(types, [&](std::span<const Value> given) { return run_step(given); })};
    return build_.add("while", start, regions, "", types);
  }

  std::vector<Value> run_step(std::span<const Value> given) {
    const Value& run = given[0];
    const std::size_t fetches = module_.fetches.size();
    std::vector<Value> arguments = outside_;
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      const Parameter& parameter = module_.parameters[i];
      if (parameter.kind == Parameter::Kind::kFeed || differs_per_run(parameter.kind))
        arguments[i] = build_.row(outside_[i], run);
    }
    for (std::size_t i = 0; i < module_.written.size(); ++i)
      arguments[module_.written[i]] = given[1 + fetches + i];
    std::vector<Value> next = {build_.add(run, build_.integer(1, run.type))};
    const std::vector<Value> results =
        build_.add("func.call", arguments, {}, "callee = @step", result_types(module_));
    for (std::size_t i = 0; i < fetches; ++i)
      next.push_back(build_.with_row(given[1 + i], run, results[i]));
    next.insert(next.end(), results.begin() + static_cast<std::ptrdiff_t>(fetches), results.end());
    return next;
  }

  std::vector<Value> results_of(const std::vector<Value>& loop) {
    std::vector<Value> results;
    const std::size_t fetches = module_.fetches.size();
    for (int run = 0; run < times_; ++run)
      for (std::size_t i = 0; i < fetches; ++i) {
        const Value& all = loop[1 + i];
        Axes begin(static_cast<std::size_t>(all.rank()), 0);
        Axes end(all.shape().words().begin(), all.shape().words().end());
        begin[0] = run;
        end[0] = run + 1;
        results.push_back(build_.reshape(build_.slice(all, begin, end), module_.fetches[i].shape));
      }
    results.insert(results.end(), loop.begin() + static_cast<std::ptrdiff_t>(1 + fetches),
                   loop.end());
    return results;
  }

  const Module& module_;
  int times_;
  Builder build_;
  std::vector<Value> outside_;  // by parameter of the module; feeds: of all runs
};

}  // namespace

bool differs_per_run(Parameter::Kind kind) {
  using Kind = Parameter::Kind;
  return kind == Kind::kNumbers || kind == Kind::kDoubles || kind == Kind::kKeys;
}

std::string text_of(const Module& module) {
  return in_module(symbol_of(module.name), module,
                   text_of(FunctionText{.name = "main",
                                        .visibility = "public",
                                        .arguments = parameter_types(module),
                                        .results = result_types(module),
                                        .donated = module.written,
                                        .first_written = module.fetches.size(),
                                        .body = module.body}));
}

std::string text_of_loop(const Module& module, int times) {
  const FunctionText step{.name = "step",
                          .visibility = "private",
                          .arguments = parameter_types(module),
                          .results = result_types(module),
                          .donated = {},
                          .first_written = 0,
                          .body = module.body};
  return in_module(fmt::format("{}_{}_times", symbol_of(module.name), times), module,
                   text_of(step) + text_of(Loop(module, times).build()));
}

}  // namespace tandem::stablehlo
