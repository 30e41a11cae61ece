// Trains, and evaluates each checkpoint. Alone, or as the tasks of a cluster, one of which evaluates beside training:
//   tandem run --workers 2 --evaluator -- ./07_train_and_evaluate
#include <iostream>
#include <tandem/tandem.h>
namespace td = tandem;

int main() {
  auto scaled = [](td::data::Example e) { return td::data::Example{td::cast(e[0], td::float32) / 255.0, e[1]}; };
  auto [training, test] = td::datasets::synthetic_digits({.train = 2000, .test = 500, .seed = 3});
  auto train_data = training.dataset().shuffle(2000, {.seed = 1}).map(scaled).batch(32).repeat();   // the GLOBAL batch
  auto test_data = test.dataset().map(scaled).batch(100);

  td::estimator::Estimator estimator({
      .model_fn = [] {
        td::Sequential model({td::layers::Flatten({.input_shape = {28, 28, 1}}), td::layers::Dense(64, {.activation = "relu"}),
                              td::layers::Dense(10)});
        model.compile({.optimizer = td::optimizers::Adam({.learning_rate = 2e-3}),
                       .loss = td::losses::SparseCategoricalCrossentropy({.from_logits = true}),
                       .metrics = {"accuracy"}});
        return model;
      },
      .model_dir = "digits",                                      // a second run finds its checkpoint here
      .save_checkpoints_steps = 100,
      .train_distribute = [] { return td::distribute::MultiWorkerMirroredStrategy(); },
  });
  auto last = td::estimator::train_and_evaluate(estimator, {.input_fn = [&] { return train_data; }, .max_steps = 300},
                                                {.input_fn = [&] { return test_data; }});
  if (last)                                                       // step 300, above 0.8; workers beside an evaluator have none
    std::cout << "step " << last->global_step << " accuracy " << last->metrics.at("accuracy") << '\n';
}
