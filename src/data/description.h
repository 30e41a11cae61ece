// Pipelines as messages, which other programs rebuild.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "data/node.h"
#include "data/proto/dataset.pb.h"
#include "data/refuse_stage.h"
#include "tandem/registered_datasets.h"

namespace tandem::data {

struct DatasetDescription {
  proto::Dataset message;
  std::vector<Tensor> tensors;              // which the stages refer to; not copied
  std::vector<ComponentSpec> element_spec;  // not part of the message
};

// Describes a pipeline, with the seeds of its shuffles and maps: the rebuilt pipeline has the same
// elements at the same positions. The element spec is found without reading an element, if that is
// possible, or else from the first one, with first axes of any size.
//
// Throws UnimplementedError, which names the stage, for a stage that other programs cannot run;
// NotFoundError and FailedPreconditionError if the element spec cannot be found.
DatasetDescription describe(const Dataset& dataset);

// The same pipeline for one of several workers that iterate over all of it: shuffles for which no
// seed was given, and random maps, have other random numbers on each. Worker 0 has those of this
// process.
DatasetDescription for_worker(DatasetDescription description, int worker);

// The pipeline of a description, which may come from anyone. Makes the registered datasets that it
// uses. Throws InvalidArgumentError for a message that is not valid, NotFoundError for a dataset
// that is not registered, and the errors of registered functions.
Dataset dataset_of(const proto::Dataset& message, std::span<const Tensor> tensors,
                   const distribute::InputContext& context);

// A dataset that only other programs have. Functions may be traced for an iterator over it, whose
// next() otherwise throws FailedPreconditionError. REQUIRES: shapes of known rank.
Dataset dataset_elsewhere(std::vector<ComponentSpec> element_spec);

// Calls a function that makes a dataset: on the host, without gradients. Throws
// InvalidArgumentError "Creating variables in `dataset_fn` is not allowed." if it makes variables,
// and for an undefined dataset.
Dataset call_dataset_fn(const DatasetFn& make, const distribute::InputContext& context);

// Makes a registered dataset, at its place. Throws NotFoundError.
NodePtr registered_node(const proto::Stage::Registered& message,
                        const distribute::InputContext& input);

// Adds the stages of nodes to a description. See DatasetNode::describe().
class StageWriter {
 public:
  explicit StageWriter(DatasetDescription& to) : to_(to) {}
  // Adds a node after its inputs, unless that has been done. Returns the index of its stage.
  std::uint32_t add(const DatasetNode& node);
  // A stage with these inputs, which are added.
  proto::Stage stage(std::span<const DatasetNode* const> inputs);
  proto::Stage stage() { return stage({}); }
  proto::Stage stage(const DatasetNode& input) {
    const DatasetNode* const pointer = &input;
    return stage({&pointer, 1});
  }
  // Sets the indices of tensors, which are added to the description.
  void set_tensors(std::span<const Tensor> tensors, proto::Stage::Tensors& to);
  // The spec of the elements of a node that was added.
  std::vector<ComponentSpec> spec_of(const DatasetNode& node) const;

 private:
  DatasetDescription& to_;
  std::map<const DatasetNode*, std::uint32_t> stages_;
  std::vector<NodePtr> rebuilt_;  // by stage; their specs are those that the receiver finds
};

}  // namespace tandem::data
