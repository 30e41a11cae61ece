// Answers calls of scripts/check-operations. A request is a line of JSON and the elements of its
// tensors, floating ones as float64, others as int64. The answer is such a line for each way to run
// the operation, and an empty line.
#include <iostream>
#include <span>
#include <sstream>

#include "operations.h"

namespace check_operations {
namespace {

template <class T>
std::vector<T> read_elements(const td::Shape& shape) {
  std::vector<T> elements(static_cast<std::size_t>(shape.num_elements()));
  std::cin.read(reinterpret_cast<char*>(elements.data()),
                static_cast<std::streamsize>(elements.size() * sizeof(T)));
  return elements;
}

Tensors read_tensors(const Json& headers) {
  Tensors tensors;
  for (const Json& header : headers) {
    const td::DType dtype = td::dtype_from_name(header[0].get<std::string>());
    td::Dims sizes;
    for (const Json& size : header[1]) sizes.push_back(size.get<std::int64_t>());
    const td::Shape shape(sizes);
    const td::ConstantOptions options{.dtype = dtype, .shape = shape};
    tensors.push_back(td::is_floating(dtype)
                          ? td::constant(read_elements<double>(shape), options)
                          : td::constant(read_elements<std::int64_t>(shape), options));
  }
  return tensors;
}

template <class T>
void write_elements(std::ostream& out, const std::vector<T>& elements) {
  out.write(reinterpret_cast<const char*>(elements.data()),
            static_cast<std::streamsize>(elements.size() * sizeof(T)));
}

td::Shape unknown_sizes(int rank) {
  td::Dims sizes;
  for (int axis = 0; axis < rank; ++axis) sizes.push_back(-1);
  return td::Shape(sizes);
}

// One way to run an operation, and its results or error.
void answer(const std::string& way, const std::function<Tensors()>& run) {
  Json header = {{"way", way}};
  std::ostringstream elements;
  try {
    Json results = Json::array();
    for (const td::Tensor& tensor : run()) {
      Json sizes = Json::array();
      for (int axis = 0; axis < tensor.rank(); ++axis) sizes.push_back(tensor.dim(axis).value());
      results.push_back({td::name_of(tensor.dtype()), sizes});
      if (td::is_floating(tensor.dtype()))
        write_elements(elements, tensor.to(td::float64).to_vector<double>());
      else
        write_elements(elements, tensor.to(td::int64).to_vector<std::int64_t>());
    }
    header["results"] = results;
  } catch (const td::Error& error) {
    header["error"] = error.kind();
    header["message"] = error.what();
  }
  if (header.contains("error")) elements.str("");
  std::cout << header.dump(-1, ' ', false, Json::error_handler_t::replace) << '\n'
            << elements.str() << std::flush;
}

class Request {
 public:
  explicit Request(const Json& request)
      : operation_(operations().at(request.at("function"))),
        attributes_(request.at("attributes")),
        inputs_(read_tensors(request.at("inputs"))),
        sources_(request.at("sources").get<std::vector<std::size_t>>()),
        cotangents_(read_tensors(request.at("cotangents"))),
        directions_(read_tensors(request.at("directions"))) {}

  void run() const {
    run_in_each_way("value", [this](const Tensors& x) { return value(x); });
    if (!cotangents_.empty())
      run_in_each_way("gradient", [this](const Tensors& x) { return gradient(x); });
    if (!directions_.empty())
      run_in_each_way("second", [this](const Tensors& x) { return second(x); });
    std::cout << std::endl;
  }

 private:
  using Function = std::function<Tensors(const Tensors&)>;

  Tensors value(const Tensors& x) const { return operation_({x, attributes_}); }

  // The sum of the products of those `values` that are floating with `weights`.
  static td::Tensor product(const Tensors& values, const Tensors& weights) {
    td::Tensor sum;
    auto weight = weights.begin();
    for (const td::Tensor& value : values) {
      if (!td::is_floating(value.dtype())) continue;
      const td::Tensor term = td::reduce_sum(value * *weight++);
      sum = sum.defined() ? sum + term : term;
    }
    return sum;
  }

  Tensors derivative(const Tensors& x, const Function& f, const Tensors& weights) const {
    Tensors sources;
    for (const std::size_t i : sources_) sources.push_back(x[i]);
    td::GradientTape tape;
    for (const td::Tensor& source : sources) tape.watch(source);
    return tape.gradient(product(f(x), weights), sources,
                         {.unconnected_gradients = td::UnconnectedGradients::kZero});
  }
  Tensors gradient(const Tensors& x) const {
    return derivative(
        x, [this](const Tensors& y) { return value(y); }, cotangents_);
  }
  Tensors second(const Tensors& x) const {
    return derivative(
        x, [this](const Tensors& y) { return gradient(y); }, directions_);
  }

  void run_in_each_way(const std::string& what, const Function& f) const {
    answer(what, [&] { return f(inputs_); });
    answer(what + ", traced", [&] { return td::function(f)(inputs_); });
    std::vector<td::InputSpec> specs;
    for (const td::Tensor& input : inputs_)
      specs.push_back({unknown_sizes(input.rank()), input.dtype()});
    answer(what + ", unknown sizes",
           [&] { return td::function(f, {.input_signature = specs})(inputs_); });
  }

  const Operation& operation_;
  const Json& attributes_;
  Tensors inputs_;
  std::vector<std::size_t> sources_;  // the inputs to differentiate with respect to
  Tensors cotangents_;                // one for each floating result
  Tensors directions_;                // one for each source
};

}  // namespace
}  // namespace check_operations

int main() {
  for (std::string line; std::getline(std::cin, line);)
    check_operations::Request(check_operations::Json::parse(line)).run();
}
