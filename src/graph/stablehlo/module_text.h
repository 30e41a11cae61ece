// The textual form of modules, which plug-ins compile.
#pragma once

#include <string>

#include "graph/stablehlo/module.h"

namespace tandem::stablehlo {

// The module, whose function "main" has the module's parameters and results. Characters of its name
// that are neither letters nor digits become '_'.
std::string text_of(const Module& module);

// Whether the host computes the parameter before each run.
bool differs_per_run(Parameter::Kind kind);

// A module that runs the function `times` times in a loop; each run reads what the one before has
// written. The parameters are those of the module, but for:
//
//   a feed                      `times` parameters, one per run
//   numbers, doubles and keys   one, whose first axis is that of the runs
//
// The results are the fetches of each run, run by run, and then the new elements of the written
// variables. REQUIRES: it counts no random operations.
std::string text_of_loop(const Module& module, int times);

}  // namespace tandem::stablehlo
