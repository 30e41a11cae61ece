// A StableHLO module, which any PJRT plug-in compiles (stablehlo/lower_module.h).
#pragma once

#include <string>
#include <vector>

#include "graph/stablehlo/lowering.h"

namespace tandem::stablehlo {

// An argument of the module's function.
struct Parameter {
  enum class Kind {
    kFeed,      // feed number `index`
    kVariable,  // the elements of the variable of `node`, a VarHandleOp
    kConstant,  // the elements of `node`, a Const
    kNumbers,   // Module::numbers, float32 [rows of all]
    kDoubles,   // Module::doubles, float64 [rows of all]
    kKeys,      // Module::keys, int64 [keys, 4]: the parts of KeyValues, as bits
  };
  Kind kind = Kind::kFeed;
  TensorType spec;
  std::size_t index = 0;
  const Node* node = nullptr;
};

// The function returns the fetches, then the new elements of the written variables, then how many
// random operations ran in each control flow that has any, and then how far control flow has
// advanced each counter (int64 scalars). The parameter of a written variable is donated: its memory
// becomes that of the result.
struct Module {
  std::string name;      // in messages
  int num_replicas = 1;  // that run it, with collectives between them
  std::string body;      // of the function: its operations, which use %arg0 and so on
  std::vector<Parameter> parameters;
  std::vector<TensorType> fetches;
  std::vector<std::size_t> written;  // parameters
  std::vector<RunNumber> numbers, doubles;
  std::vector<RunKey> keys;
  std::vector<const Node*> counted;  // control flow whose random operations are counted
  std::vector<Resource*> counters;   // that control flow advances (GraphImpl::count)

  // The results after those of the variables.
  std::size_t num_counts() const { return counted.size() + counters.size(); }
};

}  // namespace tandem::stablehlo
