// The numbers that the host computes before each run of a module, and their parameters.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "graph/stablehlo/lowering.h"
#include "graph/stablehlo/module.h"

namespace tandem::stablehlo {

// Gives each number a value of its own, defined at the start of the function, where the lengths of
// the parameters are known.
class NumberParameters final : public RunParameters {
 public:
  explicit NumberParameters(Module& module) : module_(module) {}

  // A vector of its rows.
  Value number(RunNumber number, Element element) override;
  Key key(RunKey key) override;
  // Adds the parameters to the module, and returns the lines that define the numbers.
  std::string define();

 private:
  std::string define(const char* name, const std::vector<RunNumber>& numbers, Parameter::Kind kind,
                     DType dtype);
  std::string keys();
  std::string add_parameter(Parameter::Kind kind, const TensorType& spec);

  Module& module_;
};

// The numbers of a run in the form of their parameters. `node_of` gives the replica's node for one
// of the module.
using NodeOfReplica = std::function<const Node&(const Node& node)>;
std::vector<double> numbers_of_run(std::span<const RunNumber> numbers,
                                   const NodeOfReplica& node_of);
// Those of random operations begin as if no control flow of the module ran any before them.
std::vector<std::int64_t> keys_of_run(const Module& module, const NodeOfReplica& node_of);
// Tells the sequence of Module::counted[index] how many random operations the run has counted.
void set_count(const Module& module, std::size_t index, std::int64_t count,
               const NodeOfReplica& node_of);

}  // namespace tandem::stablehlo
