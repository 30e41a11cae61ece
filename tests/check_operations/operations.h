// The functions of Tandem that scripts/check-operations compares with PyTorch's, by name.
#pragma once

#include <tandem/array.h>
#include <tandem/autodiff.h>
#include <tandem/creation.h>
#include <tandem/errors.h>
#include <tandem/function.h>
#include <tandem/layers.h>
#include <tandem/losses.h>
#include <tandem/math.h>
#include <tandem/nn.h>
#include <tandem/random.h>

#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace check_operations {

namespace td = tandem;
using Json = nlohmann::json;
using Tensors = std::vector<td::Tensor>;

// The arguments of a call: tensors, and others by name.
struct Call {
  const Tensors& x;
  const Json& attributes;

  bool has(const char* name) const { return attributes.contains(name); }
  bool flag(const char* name) const { return attributes.value(name, false); }
  std::string text(const char* name) const { return attributes.at(name); }
  std::int64_t integer(const char* name) const { return attributes.at(name); }
  double number(const char* name) const;  // also of "inf", "-inf" and "nan"
  td::Dims dims(const char* name) const;
  td::Shape shape() const { return td::Shape(dims("shape")); }
  td::nn::Pair pair(const char* name) const;
  td::CreationOptions dtype() const { return {.dtype = td::dtype_from_name(text("dtype"))}; }
};
using Operation = std::function<Tensors(const Call&)>;

const std::map<std::string, Operation>& operations();
std::map<std::string, Operation> layers();           // operations() contains them
std::map<std::string, Operation> torch_functions();  // the same
std::map<std::string, Operation> array_functions();  // the same
std::map<std::string, Operation> linear_algebra();   // the same
// The numbers "pad", or else the name "padding".
td::nn::WindowPadding padding_of(const Call& c);
td::ReduceOptions reduce_options(const Call& c);  // "axis" and "keepdims"
td::AxisIndex index(const Json& item);            // a position, or start, stop and step

}  // namespace check_operations
