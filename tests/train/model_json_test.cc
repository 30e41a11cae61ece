#include <gtest/gtest.h>

#include "tandem/tandem.h"

namespace tandem::model_json_test {
namespace {

// A model of these layers for inputs of this shape, which trains.
std::string text_of(const std::string& inputs, const std::string& layers,
                    const std::string& optimizer = R"("adam")",
                    const std::string& loss = R"("mse")") {
  return R"({"inputs": )" + inputs + R"(, "layers": [)" + layers + R"(], "optimizer": )" +
         optimizer + R"(, "loss": )" + loss + "}";
}

std::string message_of(const std::string& text) {
  try {
    static_cast<void>(model_from_json(text));
  } catch (const InvalidArgumentError& error) {
    return error.what();
  }
  return "no error";
}

Tensor ramp(const Shape& shape) {
  return reshape(range(0.0, static_cast<double>(shape.num_elements()), 1.0), shape) /
         static_cast<double>(shape.num_elements());
}

// The losses of three steps, and the result after them.
std::vector<float> trained(Model model, const Tensor& x, const Tensor& y) {
  std::vector<float> seen;
  for (int step = 0; step < 3; ++step) seen.push_back(model.train_on_batch(x, y).at("loss"));
  for (const float value : model(x).to_vector<float>()) seen.push_back(value);
  return seen;
}

TEST(ModelJson, TrainsAsTheSameModelInCpp) {
  const Tensor x = ramp({4, 6, 6, 2}), y = ramp({4, 3});
  random::set_seed(3);
  const Model by_text = model_from_json(text_of(
      "[6, 6, 2]",
      R"({"type": "conv2d", "filters": 4, "kernel_size": [3, 3], "strides": 2, "padding": "same",
          "activation": "tanh", "kernel_initializer": {"type": "random_normal", "stddev": 0.2}},
         {"type": "batch_normalization", "momentum": 0.5}, "flatten",
         {"type": "dense", "units": 3, "use_bias": false, "kernel_initializer": "he_normal"})",
      R"({"type": "sgd", "momentum": 0.9, "clipnorm": 1.0,
          "learning_rate": {"type": "exponential_decay", "initial_learning_rate": 0.1,
                            "decay_steps": 2, "decay_rate": 0.5}})",
      R"({"type": "huber", "delta": 0.25})"));
  random::set_seed(3);
  Sequential in_cpp({layers::Conv2D(4, {3, 3},
                                    {.strides = 2,
                                     .padding = "same",
                                     .activation = "tanh",
                                     .kernel_initializer = initializers::random_normal(0.0, 0.2),
                                     .input_shape = {6, 6, 2}}),
                     layers::BatchNormalization({.momentum = 0.5}), layers::Flatten(),
                     layers::Dense(3, {.use_bias = false, .kernel_initializer = "he_normal"})});
  in_cpp.compile({.optimizer = optimizers::SGD(
                      {.learning_rate = optimizers::schedules::exponential_decay(0.1, 2, 0.5),
                       .momentum = 0.9,
                       .clipnorm = 1.0}),
                  .loss = losses::Huber(0.25)});
  EXPECT_EQ(trained(by_text, x, y), trained(in_cpp, x, y));
}

TEST(ModelJson, HasAllLayersOfOneInput) {
  const struct {
    Shape input;
    const char* layer;
    Shape result;
  } cases[] = {
      {{2, 5}, R"({"type": "dense", "units": 3})", {2, 3}},
      {{2, 6, 6, 2}, R"({"type": "conv2d", "filters": 3, "kernel_size": 3})", {2, 4, 4, 3}},
      {{2, 7, 8, 2},
       R"({"type": "conv2d", "filters": 3, "kernel_size": 7, "strides": 2, "padding": 3})",
       {2, 4, 4, 3}},
      {{2, 6, 6, 2},
       R"({"type": "max_pooling2d", "pool_size": 3, "padding": [[1, 0], [2, 1]]})",
       {2, 2, 3, 2}},
      {{2, 6, 6, 2},
       R"({"type": "depthwise_conv2d", "kernel_size": 3, "padding": [1, 0]})",
       {2, 6, 4, 2}},
      {{2, 5, 6, 6, 2},
       R"({"type": "conv3d", "filters": 3, "kernel_size": [2, 3, 3], "strides": [1, 2, 2],
           "padding": [1, 0, 0]})",
       {2, 6, 2, 2, 3}},
      {{2, 5, 6, 6, 2},
       R"({"type": "max_pooling3d", "pool_size": 2, "padding": "same"})",
       {2, 3, 3, 3, 2}},
      {{2, 5, 6, 6, 2}, R"("average_pooling3d")", {2, 2, 3, 3, 2}},
      {{2, 5, 6, 6, 2}, R"("global_average_pooling3d")", {2, 2}},
      {{2, 5, 6, 6, 2}, R"({"type": "global_max_pooling3d", "keepdims": true})", {2, 1, 1, 1, 2}},
      {{2, 6, 2},
       R"({"type": "conv1d", "filters": 3, "kernel_size": 3, "padding": "causal", "strides": 2})",
       {2, 3, 3}},
      {{2, 3, 3, 2},
       R"({"type": "conv2d_transpose", "filters": 5, "kernel_size": 3, "strides": 2,
           "output_padding": 1})",
       {2, 8, 8, 5}},
      {{2, 6, 6, 2},
       R"({"type": "separable_conv2d", "filters": 5, "kernel_size": 3})",
       {2, 4, 4, 5}},
      {{2, 6, 2}, R"({"type": "max_pooling1d", "pool_size": 3})", {2, 2, 2}},
      {{2, 6, 2}, R"({"type": "average_pooling1d", "strides": 1})", {2, 5, 2}},
      {{2, 6, 2}, R"("up_sampling1d")", {2, 12, 2}},
      {{2, 3, 3, 2},
       R"({"type": "up_sampling2d", "size": [2, 3], "interpolation": "bilinear"})",
       {2, 6, 9, 2}},
      {{2, 6, 6, 4}, R"({"type": "group_normalization", "groups": 2})", {2, 6, 6, 4}},
      {{2, 6, 4}, R"({"type": "rms_normalization", "epsilon": 0.1})", {2, 6, 4}},
      {{2, 6, 4}, R"("unit_normalization")", {2, 6, 4}},
      {{2, 6, 4}, R"({"type": "spatial_dropout1d", "rate": 0.1})", {2, 6, 4}},
      {{2, 6, 6, 4}, R"({"type": "spatial_dropout2d", "rate": 0.1})", {2, 6, 6, 4}},
      {{2, 6, 4}, R"("identity")", {2, 6, 4}},
      {{2, 6, 4}, R"({"type": "permute", "dims": [2, 1]})", {2, 4, 6}},
      {{2, 6}, R"({"type": "repeat_vector", "n": 3})", {2, 3, 6}},
      {{2, 6, 4}, R"({"type": "prelu", "shared_axes": [1]})", {2, 6, 4}},
      {{2, 4, 3}, R"({"type": "lstm", "units": 5, "return_sequences": true})", {2, 4, 5}},
      {{2, 4, 3}, R"({"type": "gru", "units": 5, "reset_after": false})", {2, 5}},
      {{2, 4, 3}, R"({"type": "simple_rnn", "units": 5, "recurrent_dropout": 0.2})", {2, 5}},
      {{2, 4, 3},
       R"({"type": "bidirectional", "merge_mode": "sum", "layer": {"type": "lstm", "units": 5}})",
       {2, 5}},
      {{2, 4, 3},
       R"({"type": "time_distributed", "layer": {"type": "dense", "units": 6}})",
       {2, 4, 6}},
      {{2, 6, 6, 2},
       R"({"type": "depthwise_conv2d", "kernel_size": 3, "depth_multiplier": 2})",
       {2, 4, 4, 4}},
      {{2, 6, 6, 2}, R"({"type": "max_pooling2d", "pool_size": [3, 2]})", {2, 2, 3, 2}},
      {{2, 6, 6, 2}, R"("average_pooling2d")", {2, 3, 3, 2}},
      {{2, 6, 6, 2}, R"({"type": "global_average_pooling2d", "keepdims": true})", {2, 1, 1, 2}},
      {{2, 6, 6, 2}, R"("global_max_pooling2d")", {2, 2}},
      {{2, 5}, R"({"type": "batch_normalization", "epsilon": 0.1})", {2, 5}},
      {{2, 5}, R"({"type": "layer_normalization", "center": false})", {2, 5}},
      {{2, 3, 4}, R"({"type": "multi_head_attention", "num_heads": 2, "key_dim": 4})", {2, 3, 4}},
      {{2, 5}, R"({"type": "dropout", "rate": 0.5})", {2, 5}},
      {{2, 3, 4}, R"("flatten")", {2, 12}},
      {{2, 3, 4}, R"({"type": "reshape", "target_shape": [2, -1]})", {2, 2, 6}},
      {{2, 5}, R"({"type": "activation", "activation": "gelu"})", {2, 5}},
      {{2, 5}, R"("relu")", {2, 5}},
      {{2, 5},
       R"({"type": "relu", "max_value": 6, "negative_slope": 0.1, "threshold": 0.5})",
       {2, 5}},
      {{2, 5}, R"({"type": "leaky_relu", "negative_slope": 0.1})", {2, 5}},
      {{2, 5}, R"({"type": "elu", "alpha": 0.5})", {2, 5}},
      {{2, 5, 3}, R"({"type": "softmax", "axis": 1})", {2, 5, 3}},
      {{2, 5}, R"({"type": "activation", "activation": "hard_swish"})", {2, 5}},
      {{2, 5}, R"("softmax")", {2, 5}},
      {{2, 5}, R"({"type": "rescaling", "scale": 0.5, "offset": 1})", {2, 5}},
      {{2, 6, 6, 2}, R"({"type": "zero_padding2d", "padding": [1, 2]})", {2, 8, 10, 2}},
      {{2, 5}, R"({"type": "normalization", "mean": [1], "variance": [4]})", {2, 5}},
      {{2, 5}, R"({"type": "normalization", "axis": 1})", {2, 5}},
      {{2, 5, 3}, R"({"type": "normalization", "axis": [1, -1]})", {2, 5, 3}},
      {{2, 5}, R"({"type": "discretization", "bin_boundaries": [0, 1]})", {2, 5}},
      {{2, 5}, R"({"type": "category_encoding", "num_tokens": 3})", {2, 3}},
      {{2, 5},
       R"({"type": "integer_lookup", "vocabulary": [0, 7], "mask_token": 3,
           "output_mode": "count"})",
       {2, 3}},
      {{2, 5}, R"({"type": "embedding", "input_dim": 7, "output_dim": 3})", {2, 5, 3}},
      {{2, 3, 4}, R"({"type": "position_embedding", "sequence_length": 3})", {2, 3, 4}},
  };
  for (const auto& each : cases) {
    SCOPED_TRACE(each.layer);
    std::string inputs;
    for (int axis = 1; axis < each.input.rank(); ++axis)
      inputs += (inputs.empty() ? "[" : ", ") + std::to_string(each.input.dim(axis));
    inputs += "]";
    const Model model =
        model_from_json(R"({"inputs": )" + inputs + R"(, "layers": [)" + each.layer + "]}");
    const bool indices = std::string_view(each.layer).find("\"embedding\"") != std::string::npos;
    EXPECT_EQ(model(zeros(each.input, indices ? int32 : float32)).shape(), each.result);
  }
}

TEST(ModelJson, HasAllOptimizersSchedulesAndLosses) {
  const Tensor x = ramp({4, 3}), y = ramp({4, 2});
  const auto losses_of = [&](const std::string& optimizer, const std::string& loss) {
    random::set_seed(1);
    return trained(
        model_from_json(text_of("[3]", R"({"type": "dense", "units": 2, "activation": "softmax"})",
                                optimizer, loss)),
        x, y);
  };
  const auto in_cpp = [&](const OptimizerChoice& optimizer, const losses::Loss& loss) {
    random::set_seed(1);
    Sequential model({layers::Dense(2, {.activation = "softmax", .input_shape = {3}})});
    model.compile({.optimizer = optimizer, .loss = loss});
    return trained(model, x, y);
  };
  for (const char* name : {"sgd", "adam", "adamw", "rmsprop", "adagrad", "lamb"})
    EXPECT_EQ(losses_of('"' + std::string(name) + '"', R"("mse")"), in_cpp(name, "mse")) << name;
  for (const char* name : {"categorical_crossentropy",
                           "binary_crossentropy",
                           "mean_squared_error",
                           "mse",
                           "mean_absolute_error",
                           "mae",
                           "huber",
                           "kl_divergence",
                           "hinge",
                           "squared_hinge",
                           "categorical_hinge",
                           "mean_absolute_percentage_error",
                           "mape",
                           "mean_squared_logarithmic_error",
                           "msle",
                           "log_cosh",
                           "poisson",
                           "cosine_similarity",
                           "dice",
                           "tversky",
                           "binary_focal_crossentropy",
                           "categorical_focal_crossentropy"})
    EXPECT_EQ(losses_of(R"("sgd")", '"' + std::string(name) + '"'), in_cpp("sgd", name)) << name;
  EXPECT_EQ(losses_of(R"("sgd")", R"({"type": "tversky", "alpha": 0.3, "beta": 0.6})"),
            in_cpp("sgd", losses::Tversky({.alpha = 0.3, .beta = 0.6})));
  EXPECT_EQ(losses_of(R"("sgd")", R"({"type": "binary_focal_crossentropy", "gamma": 1.5,
                                      "apply_class_balancing": true, "alpha": 0.3})"),
            in_cpp("sgd", losses::BinaryFocalCrossentropy(
                              {.apply_class_balancing = true, .alpha = 0.3, .gamma = 1.5})));
  const Tensor frames = ramp({4, 6, 3}), labels = constant({{1, 2}, {3, 0}, {2, 2}, {1, 0}});
  random::set_seed(1);
  Sequential speech({layers::Dense(4, {.input_shape = {6, 3}})});
  speech.compile({.optimizer = "sgd", .loss = losses::CTC()});
  random::set_seed(1);
  EXPECT_EQ(trained(model_from_json(text_of("[6, 3]", R"({"type": "dense", "units": 4})",
                                            R"("sgd")", R"("ctc")")),
                    frames, labels),
            trained(speech, frames, labels));
  using namespace optimizers;
  const auto scheduled = [&](const std::string& schedule) {
    return losses_of(R"({"type": "sgd", "learning_rate": )" + schedule + "}", R"("mse")");
  };
  EXPECT_EQ(scheduled(R"({"type": "inverse_time_decay", "initial_learning_rate": 0.1,
                          "decay_steps": 1, "decay_rate": 2, "staircase": true})"),
            in_cpp(SGD(schedules::inverse_time_decay(0.1, 1, 2.0, true)), "mse"));
  EXPECT_EQ(
      scheduled(R"({"type": "piecewise_constant_decay", "boundaries": [0], "values": [1, 0.1]})"),
      in_cpp(SGD(schedules::piecewise_constant({0}, {1.0, 0.1})), "mse"));
  EXPECT_EQ(scheduled(R"({"type": "polynomial_decay", "initial_learning_rate": 0.1,
                          "decay_steps": 2, "power": 2})"),
            in_cpp(SGD(schedules::polynomial_decay(0.1, 2, 1e-4, 2.0)), "mse"));
  EXPECT_EQ(scheduled(R"({"type": "cosine_decay", "initial_learning_rate": 0, "decay_steps": 2,
                          "warmup_target": 0.1, "warmup_steps": 1})"),
            in_cpp(SGD(schedules::cosine_decay(0.0, 2, {.warmup_target = 0.1, .warmup_steps = 1})),
                   "mse"));
}

TEST(ModelJson, GivesLayersItsDType) {
  const Model model = model_from_json(
      R"({"inputs": [3], "dtype": "float64", "layers": [{"type": "dense", "units": 2},
          {"type": "dense", "units": 2, "dtype": "float32"}]})");
  EXPECT_EQ(model.variables().front().dtype(), float64);
  EXPECT_EQ(model.variables().back().dtype(), float32);
}

TEST(ModelJson, HasSeveralInputsAndOutputs) {
  random::set_seed(3);
  Model by_text = model_from_json(R"({
    "inputs": {"image": [4, 4, 1], "numbers": [2]},
    "layers": [{"type": "flatten", "inputs": "image", "name": "flat"},
               {"type": "dense", "units": 2, "activation": "tanh", "name": "hidden"},
               {"type": "add", "inputs": ["numbers", "numbers"], "name": "twice"},
               {"type": "concatenate", "inputs": ["flat", "twice"], "name": "both"},
               {"type": "dense", "units": 3, "name": "sum"},
               {"type": "multiply", "inputs": ["hidden", "twice"]},
               {"type": "dense", "units": 1, "name": "product"}],
    "outputs": ["product", "sum"], "optimizer": "sgd", "loss": ["mse", "huber"],
    "loss_weights": [2, 0.5]})");
  random::set_seed(3);
  const SymbolicInput image = Input({4, 4, 1}, "image"), numbers = Input({2}, "numbers");
  const SymbolicInput flat = layers::Flatten()(image);
  const SymbolicInput hidden = layers::Dense(2, {.activation = "tanh"})(flat);
  const SymbolicInput twice = layers::Add()({numbers, numbers});
  const SymbolicInput sum = layers::Dense(3)(layers::Concatenate()({flat, twice}));
  const SymbolicInput product = layers::Dense(1)(layers::Multiply()({hidden, twice}));
  Model in_cpp({image, numbers}, {product, sum});
  in_cpp.compile({.optimizer = optimizers::SGD(),
                  .loss = {losses::MeanSquaredError(), losses::Huber()},
                  .loss_weights = {2.0, 0.5}});
  EXPECT_EQ(by_text.output_names(), std::vector<std::string>({"product", "sum"}));
  const std::vector<Tensor> x{ramp({5, 4, 4, 1}), ramp({5, 2})}, y{ramp({5, 1}), ramp({5, 3})};
  for (int step = 0; step < 3; ++step)
    EXPECT_EQ(by_text.train_on_batch(x, y).at("loss"), in_cpp.train_on_batch(x, y).at("loss"));
}

TEST(ModelJson, GivesAllInputsToTheFirstLayer) {
  const Model model = model_from_json(
      R"({"inputs": {"a": [2], "b": [3]},
          "layers": ["concatenate", {"type": "dense", "units": 4}]})");
  EXPECT_EQ(model.call_all({ramp({5, 2}), ramp({5, 3})}).at(0).shape(), Shape({5, 4}));
  EXPECT_EQ(model.variables().front().shape(), Shape({5, 4}));
}

TEST(ModelJson, NamesThePlaceOfAnError) {
  const std::string dense = R"({"type": "dense", "units": 1})";
  const struct {
    std::string text, message;
  } cases[] = {
      {"[]", "the definition: expected an object, got []"},
      {R"({"layers": []})", "inputs: expected a value, got none"},
      {R"({"inputs": [0], "layers": []})", "inputs: expected sizes of at least 1"},
      {R"({"inputs": 9, "layers": []})", "inputs: expected an array, got 9"},
      {R"({"inputs": [9]})", "layers: expected a value, got none"},
      {R"({"inputs": [9], "layers": []})", "layers: expected at least one layer, got none"},
      {R"({"inputs": [9], "layers": [7]})", "layers[0]: expected an object, got 7"},
      {R"({"inputs": [9], "layers": [{}]})", "layers[0].type: expected a value, got none"},
      {R"({"inputs": [9], "layers": ["danse"]})",
       "layers[0].type: [type] expected one of: dense, conv2d"},
      {R"({"inputs": [9], "layers": [{"type": "dense"}]})",
       "layers[0].units: expected a value, got none"},
      {R"({"inputs": [9], "layers": [{"type": "dense", "units": 1.5}]})",
       "layers[0].units: expected a whole number, got 1.5"},
      {R"({"inputs": [9], "layers": [{"type": "dense", "units": -1}]})", "layers[0]: [dense]"},
      {R"({"inputs": [9], "layers": ["relu", {"type": "dense", "units": 1, "activasion": "elu"}]})",
       "layers[1].activasion: expected one of activation, bias_initializer"},
      {R"({"inputs": [9], "layers": [{"type": "dense", "units": 1, "activation": "relo"}]})",
       "layers[0].activation: [activation] expected one of"},
      {R"({"inputs": [9], "layers": [{"type": "dense", "units": 1, "kernel_initializer":
           {"type": "constant", "valu": 1}}]})",
       "layers[0].kernel_initializer.value: expected a value, got none"},
      {R"({"inputs": [9], "layers": [{"type": "conv2d", "filters": 1, "kernel_size": [1, 2, 3]}]})",
       "layers[0].kernel_size: expected one number or two"},
      {R"({"inputs": [9], "layers": [{"type": "conv2d", "filters": 1, "kernel_size": 3,
           "padding": "full"}]})",
       "layers[0].padding: [padding] expected 'valid' or 'same', got 'full'"},
      {R"({"inputs": [9], "layers": [{"type": "conv2d", "filters": 1, "kernel_size": 3,
           "padding": [[1, 2], [3]]}]})",
       "layers[0].padding: expected [[top, bottom], [left, right]], got [[1,2],[3]]"},
      {R"({"inputs": [9], "layers": [{"type": "max_pooling2d", "padding": -1}]})",
       "layers[0].padding: [padding] expected numbers of 0 or more, got -1"},
      {R"({"inputs": [9, 9], "layers": [{"type": "conv2d", "filters": 1, "kernel_size": 3}]})",
       "layers: [conv2d]"},
      {R"({"inputs": [9], "layers": ["relu"], "optimizer": "adam"})",
       "loss: expected a value, got none"},
      {text_of("[9]", dense, R"({"type": "adam", "learning_rat": 0.1})"),
       "optimizer.learning_rat: expected one of amsgrad, beta_1"},
      {text_of("[9]", dense, R"({"type": "adam", "learning_rat": 0.1})"),
       "did you mean 'learning_rate'?"},
      {text_of("[9]", dense, R"({"type": "sgd", "learning_rate": {"type": "cosine_decay"}})"),
       "optimizer.learning_rate.initial_learning_rate: expected a value, got none"},
      {text_of("[9]", dense, R"("adam")", R"({"type": "huber", "delta": "1"})"),
       R"(loss.delta: expected a number, got "1")"},
      {R"({"inputs": [9], "layers": ["relu"], "input_layout": "rows"})",
       R"(input_layout: expected "channels_last" or "channels_first", got "rows")"},
      {R"({"inputs": [9], "layers": [{"type": "relu", "inputs": "a"}]})",
       "layers[0].inputs: expected one of"},
      {R"({"inputs": {}, "layers": ["relu"]})", "inputs: expected at least one input, got none"},
      {R"({"inputs": {"a": [0]}, "layers": ["relu"]})", "inputs.a: expected sizes of at least 1"},
      {R"({"inputs": {"field": [2], "b": [2]}, "layers": ["add",
           {"type": "add", "inputs": ["b", "feild"]}]})",
       "layers[1].inputs[1]: expected one of field, b; got 'feild'; did you mean 'field'?"},
      {R"({"inputs": {"a": [2]}, "layers": [{"type": "relu", "inputs": []}]})",
       "layers[0].inputs: expected at least one name, got none"},
      {R"({"inputs": {"a": [2]}, "layers": [{"type": "relu", "inputs": 7}]})",
       "layers[0].inputs: expected a string, got 7"},
      {R"({"inputs": {"a": [2]}, "layers": [{"type": "relu", "name": "a"}]})",
       "layers[0]: expected another name than 'a', which is taken"},
      {R"({"inputs": {"a": [2], "b": [3]}, "layers": ["add"]})", "layers[0]: [add]"},
      {R"({"inputs": {"a": [2], "b": [2]}, "layers": [{"type": "relu", "inputs": "a"}]})",
       "inputs.b: expected a layer or \"outputs\" that uses it, got none"},
      {R"({"inputs": {"a": [2]}, "layers": [{"type": "relu", "name": "r"}, "tanh"]})",
       "layers[1].type: [type] expected one of"},
      {R"({"inputs": {"a": [2]}, "layers": [{"type": "relu", "name": "r"}, "relu"],
           "outputs": ["r"]})",
       "layers[1]: expected a layer or \"outputs\" that uses it, got none"},
      {R"({"inputs": {"a": [2]}, "layers": [{"type": "relu", "name": "r"}], "outputs": ["r", "a"],
           "optimizer": "sgd", "loss": ["mse", "mse", "mse"]})",
       "loss: [compile]"},
      {R"({"inputs": {"a": [2]}, "layers": [{"type": "relu", "name": "r"}], "outputs": ["r", "a"],
           "optimizer": "sgd", "loss": ["mse", "mes"]})",
       "loss[1]: [type] expected one of"},
      {R"({"inputs": {"a": [2]}, "layers": ["relu"], "loss_weights": [1]})",
       "loss_weights: expected one of"},
      {R"({"inputs": {"a": [2], "b": [2]}, "layers": ["add"], "normalize": true})",
       "normalize: expected none with several inputs or outputs"},
      {R"({"inputs": [9], "layers": ["relu"], "normalize": true})",
       "normalize: expected none: the C library alone converts its arrays"},
  };
  for (const auto& [text, message] : cases) {
    const std::string got = message_of(text);
    EXPECT_TRUE(got.starts_with("[model_from_json] ")) << got;
    EXPECT_NE(got.find(message), std::string::npos) << got << "\n  for " << text;
  }
  EXPECT_NE(message_of("{").find("is not JSON"), std::string::npos);
}

}  // namespace
}  // namespace tandem::model_json_test
