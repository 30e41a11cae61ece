// The base of recurrent layers.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "nn/layer_base.h"
#include "tandem/recurrent.h"

namespace tandem {

// A layer with a state: of Recurrent::call_with_state().
class RecurrentBase : public KindLayer {
 public:
  using KindLayer::KindLayer;

  // Calls run(), and gives the state to the call_with_state() that made this call.
  Tensor call(std::span<const Tensor> inputs, const CallOptions& options) final;
  Shape output_shape(std::span<const Shape> input_shapes) const final;
  // A layer that is not built, with the same options but these.
  virtual std::shared_ptr<RecurrentBase> with(const std::string& name, bool go_backwards,
                                              bool zero_output_for_mask) const = 0;
  virtual bool go_backwards() const = 0;
  virtual bool return_sequences() const = 0;
  // How many tensors a state has.
  virtual std::size_t num_states() const = 0;

 protected:
  struct Call {
    Tensor sequence;
    std::vector<Tensor> state;  // empty: zeros
    Tensor mask;                // undefined: none
    bool training = false;
  };
  virtual layers::RecurrentResult run(const Call& call) = 0;
  // The result's shape. Throws InvalidArgumentError for an invalid shape of sequences.
  virtual Shape infer(const Shape& sequence) const = 0;

 private:
  Call parts_of(std::span<const Tensor> inputs, bool training) const;
};

// That of `layer`. Throws InvalidArgumentError "[what] expected a recurrent layer, got ...".
RecurrentBase& recurrent_of(const std::string& what, const Layer& layer);

}  // namespace tandem
