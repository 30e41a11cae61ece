/// @file
/// Models of JSON text.
#pragma once

#include <string>

#include "tandem/model.h"

namespace tandem {

/// The model that JSON text describes, built, and compiled if the definition has a loss:
/// @code
/// {"inputs": [9],
///  "layers": [{"type": "dense", "units": 32, "activation": "tanh"},
///             {"type": "dense", "units": 1}],
///  "optimizer": {"type": "adam", "learning_rate": 0.003}, "loss": "mean_squared_error"}
/// @endcode
/// "inputs" is the shape of one example. A model of several inputs or outputs has names for them,
/// and calls its layers as a graph: "inputs" of a layer has the names of inputs or of layers before
/// it, and is the layer before if it is missing (for the first layer: all inputs); "outputs" has
/// the names of layers, and is the last one if it is missing:
/// @code
/// {"inputs": {"field": [8, 8, 1], "numbers": [3]},
///  "layers": [{"type": "flatten", "inputs": "field", "name": "flat"},
///             {"type": "concatenate", "inputs": ["flat", "numbers"], "name": "both"},
///             {"type": "dense", "units": 1, "name": "force"},
///             {"type": "dense", "units": 4, "name": "kind", "inputs": "both"}],
///  "outputs": ["force", "kind"], "optimizer": "adam", "loss": ["mse", "huber"],
///  "loss_weights": [1, 0.1]}
/// @endcode
/// Layers, optimizers, schedules (as "learning_rate") and
/// losses have the type names and options of docs/simulation.md, which are those of C++; one
/// without options may be its name alone. "dtype" is the dtype policy of the layers that have none.
/// The format is not that of Keras's function of this name.
///
/// Throws InvalidArgumentError that names the place, as in "layers[1].units", for text that is not
/// JSON, members that are missing, unknown or of another type, and values out of range.
Model model_from_json(const std::string& text);

}  // namespace tandem
