// Operations of Tandem, measured on request; scripts/bench asks this program and
// peers/torch_operations.py in turns. Each line of the standard input is a request, each line of
// the output the answer:
//   list        the cases (operation_cases.h)
//   check CASE  the sum of the result and of each gradient, and the sum of absolute values
//   measure CASE SIZE DTYPE PASS SECONDS
//               the nanoseconds of a forward pass, or of a backward pass without its forward
#include <tandem/tandem.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iostream>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "operation_cases.h"
#include "report.h"

namespace {

using namespace bench;  // NOLINT: the program is the benchmark

constexpr const char* kValueNames[] = {"signed", "positive", "unit", "near_one", "classes", "bool"};
constexpr const char* kLayoutNames[] = {"plain", "image", "kernel", "depthwise", "linear", "heads"};

std::string list_of(const td::Shape& shape) {
  std::string text = "[";
  for (int axis = 0; axis < shape.rank(); ++axis)
    text += (axis > 0 ? ", " : "") + std::to_string(shape[axis]);
  return text + "]";
}

void print_case(const OperationCase& what) {
  const auto word = [](bool value) { return value ? "true" : "false"; };
  std::printf(
      "{\"case\": \"%s\", \"torch\": \"%s\", \"backward\": %s, \"random\": %s, \"dtypes\": %s, "
      "\"sizes\": {",
      what.name.c_str(), what.torch.c_str(), word(what.backward), word(what.random),
      word(what.dtypes));
  for (std::size_t size = 0; size < kSizes.size(); ++size) {
    const td::Shape& shape = what.inputs.empty() ? what.shapes[size] : what.inputs[0].shapes[size];
    std::printf("%s\"%s\": {\"shape\": %s, \"inputs\": [", size > 0 ? ", " : "", kSizes[size],
                list_of(shape).c_str());
    for (std::size_t i = 0; i < what.inputs.size(); ++i) {
      const Input& input = what.inputs[i];
      std::printf(
          "%s{\"shape\": %s, \"values\": \"%s\", \"layout\": \"%s\", \"limit\": %lld, "
          "\"gradient\": %s, \"wide\": %s}",
          i > 0 ? ", " : "", list_of(input.shapes[size]).c_str(),
          kValueNames[static_cast<std::size_t>(input.values)],
          kLayoutNames[static_cast<std::size_t>(input.layout)],
          static_cast<long long>(input.limits[size]), word(has_gradient(input)), word(input.wide));
    }
    std::printf("]}");
  }
  std::printf("}}");
}

void print_cases() {
  std::printf("[");
  for (const OperationCase& what : operation_cases()) {
    if (&what != &operation_cases().front()) std::printf(", ");
    print_case(what);
  }
  std::printf("]\n");
}

const OperationCase& find_operation(const std::string& name) {
  for (const OperationCase& what : operation_cases())
    if (what.name == name) return what;
  throw std::invalid_argument("no case " + name);
}

// A case at one size and dtype.
class Prepared {
 public:
  Prepared(const std::string& name, const std::string& size, const std::string& dtype)
      : what_(find_operation(name)),
        size_(static_cast<std::size_t>(std::find(kSizes.begin(), kSizes.end(), size) -
                                       kSizes.begin())),
        dtype_(dtype == "bfloat16" ? td::bfloat16 : td::float32),
        inputs_(make_inputs(what_, size_, dtype_)),
        sources_(sources_of(what_, inputs_)) {}

  td::Tensor forward() const { return what_.call({inputs_, what_.shapes[size_], dtype_}); }

  // Records a forward pass, which backward() can then follow any number of times.
  void record() {
    tape_ = std::make_unique<td::GradientTape>(td::GradientTapeOptions{.persistent = true});
    for (const td::Tensor& source : sources_) tape_->watch(source);
    result_ = forward();
    slope_ = make_slope(result_);
  }
  std::vector<td::Tensor> backward() {
    const td::NoGradScope first_order;
    return tape_->gradient(result_, sources_, {.output_gradient = slope_});
  }
  bool has_backward() const { return what_.backward && !sources_.empty(); }

 private:
  const OperationCase& what_;
  std::size_t size_;
  td::DType dtype_;
  std::vector<td::Tensor> inputs_, sources_;
  std::unique_ptr<td::GradientTape> tape_;
  td::Tensor result_, slope_;
};

void print_sums(const td::Tensor& tensor, const char* separator) {
  double sum = 0, magnitude = 0;
  for (const float value : td::cast(tensor, td::float32).to_vector<float>()) {
    sum += value;
    magnitude += std::abs(value);
  }
  std::printf("%s[%.9g, %.9g]", separator, sum, magnitude);
}

void check(const std::string& name) {
  Prepared prepared(name, "small", "float32");
  std::printf("{\"sums\": [");
  print_sums(prepared.forward(), "");
  if (prepared.has_backward()) {
    prepared.record();
    for (const td::Tensor& gradient : prepared.backward()) print_sums(gradient, ", ");
  }
  std::printf("]}\n");
}

// Nanoseconds per call. Blocks last at least half a millisecond.
template <class Call>
double time_calls(double seconds, const Call& call) {
  const auto calls = [&](int count) {
    for (int i = 0; i < count; ++i) call();
  };
  calls(1);
  const double ms = time_for(0, 1, calls);
  const int count = static_cast<int>(std::clamp(std::ceil(0.5 / ms), 1.0, 1e5));
  calls(std::max(1, count / 4));
  return time_for(seconds, count, calls) * 1e6;
}

}  // namespace

int main(int argc, char** argv) {
  const BenchOptions options = parse(argc, argv);
  td::config::set_visible_devices({}, "GPU");
  td::config::set_intra_op_parallelism_threads(options.threads);
  std::unique_ptr<Prepared> prepared;
  std::string prepared_for;
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string request, name, size, dtype, pass;
    double seconds = 0;
    words >> request >> name >> size >> dtype >> pass >> seconds;
    if (request == "list") {
      print_cases();
    } else if (request == "check") {
      check(name);
    } else if (request == "measure") {
      if (const std::string wanted = name + " " + size + " " + dtype; wanted != prepared_for) {
        prepared.reset();
        td::config::trim_memory("CPU:0");
        prepared = std::make_unique<Prepared>(name, size, dtype);
        prepared_for = wanted;
      }
      double ns = 0;
      if (pass == "backward") {
        prepared->record();
        ns = time_calls(seconds, [&] { prepared->backward(); });
      } else {
        ns = time_calls(seconds, [&] { prepared->forward(); });
      }
      std::printf("{\"ns\": %.1f}\n", ns);
    } else {
      throw std::invalid_argument("unknown request " + line);
    }
    std::fflush(stdout);
  }
}
