/// @file
/// Datasets that a program registers under a name, so that other programs can refer to them. For
/// pipelines that cannot be sent to the workers of a parameter server strategy: those of
/// generators, of files in formats of their own, and of C++ functions that cannot be traced.
/// @code
/// // The workers' program:
/// td::data::register_dataset("train", [](const td::distribute::InputContext&) {
///   return Dataset::from_generator(read_logs).shuffle(10'000, {.seed = 1}).repeat().batch(64);
/// });
/// ...                                                    // serves the coordinator
///
/// // The coordinator's program:
/// auto batches = coordinator.create_per_worker_dataset(td::data::registered_dataset(
///     "train", {{.dtype = td::float32, .shape = {64, 10}}}));
/// @endcode
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tandem/data.h"

namespace tandem::distribute {

/// Which part of the input a function that makes a dataset is asked for. As
/// tf.distribute.InputContext.
struct InputContext {
  int num_input_pipelines = 1;   ///< number of pipelines that share the data
  int input_pipeline_id = 0;     ///< which of them this is
  int num_replicas_in_sync = 1;  ///< number of replicas that share a global batch

  /// The part of a global batch that a replica gets. Throws InvalidArgumentError if it does not
  /// divide. As tf.distribute.InputContext.get_per_replica_batch_size.
  std::int64_t get_per_replica_batch_size(std::int64_t global_batch_size) const;
};

}  // namespace tandem::distribute

namespace tandem::data {

/// Makes the dataset of an input pipeline.
using DatasetFn = std::function<Dataset(const distribute::InputContext&)>;

/// Registers a dataset in this process. `make` is called whenever a pipeline that uses the name is
/// built here. It must return the same elements in every process and after a restart, so that a
/// worker that is restarted continues where it was. Shuffles for which it gives no seed, and random
/// maps, have other random numbers on each worker.
///
/// Throws InvalidArgumentError for an empty name and an empty function, and AlreadyExistsError if
/// the name is taken. Thread-safe.
void register_dataset(const std::string& name, DatasetFn make);

/// The dataset that is registered under this name: a description, which a worker resolves in its
/// own program when it gets it. Iterating here uses this program's dataset, and throws
/// NotFoundError if it has none.
///
/// `element_spec`: the dtypes and shapes of the elements; unknown sizes are -1. They are needed
/// where the dataset is not registered; empty: those of this program's dataset. Throws
/// InvalidArgumentError for an empty name and an unknown rank.
Dataset registered_dataset(const std::string& name, std::vector<ComponentSpec> element_spec = {});

}  // namespace tandem::data
