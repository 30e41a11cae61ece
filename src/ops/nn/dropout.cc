// Dropout: N. Srivastava et al., 2014; kept elements are scaled up in training ("inverted
// dropout").
#include "ops/nn/dropout.h"

#include <cstdint>

#include "core/parallel.h"
#include "core/status.h"
#include "op/dtype_switch.h"
#include "op/record.h"
#include "ops/nn/dropout_range.h"
#include "ops/op_list.h"
#include "ops/random/distributions.h"
#include "runtime/dispatch.h"
#include "runtime/generator.h"
#include "runtime/replica_context.h"
#include "tandem/nn.h"

namespace tandem {
namespace {

void infer_dropout(InferContext& c) {
  check_dtype(c.op().name, kFloating, c.dtype(0));
  const double rate = c.attrs<DropoutAttrs>().rate;
  if (!(rate >= 0.0 && rate < 1.0))
    fail<InvalidArgumentError>("[{}] expected a rate in [0, 1), got {}", c.op().name, rate);
  c.attrs<DropoutAttrs>().check_offset(c.op().name);
  c.add_output(c.dtype(0), c.shape(0));
}

void dropout_kernel(KernelContext& c) {
  const auto& attrs = c.attrs<DropoutAttrs>();
  const RandomKey random_key = attrs.random_key();
  const std::uint32_t threshold = attrs.threshold();
  switch_floating(c.inputs[0].dtype, [&]<class T>(TypeTag<T>) {
    parallel_for(c.outputs[0].size(), kElementwiseGrain, [&](std::int64_t begin, std::int64_t end) {
      dropout_range(random_key, threshold, attrs.scale(), c.inputs[0].as<const T>() + begin,
                    c.outputs[0].as<T>() + begin, attrs.offset + begin, attrs.offset + end);
    });
  });
}

// Generates the same mask again, since the attributes hold the random key.
void dropout_gradient(GradContext& c) {
  c.set_grad(0, run(kDropout, {&c.grad()}, c.attrs<DropoutAttrs>()));
}

}  // namespace

const OpDef kDropout = {.name = "Dropout",
                        .attrs = &attrs_type<DropoutAttrs>,
                        .infer = infer_dropout,
                        .gradient = dropout_gradient,
                        .cpu_kernel = dropout_kernel,
                        .traits = kStateful | kInPlace,
                        .exchange_key = exchange_key<DropoutAttrs>};

OpList dropout_ops() { return list_of<kDropout>(); }

void DropoutAttrs::check_offset(std::string_view op) const {
  if (offset < 0 || offset > kMaxElements)
    fail<InvalidArgumentError>("[{}] expected an offset in [0, {}], got {}", op, kMaxElements,
                               offset);
}

DropoutAttrs next_dropout(double rate, const Shape& shape) {
  const RandomKey random_key = Generator::current().next();
  DropoutAttrs attrs{.rate = rate,
                     .seed = random_key.seed,
                     .number = random_key.number,
                     .stream = random_key.stream};
  const ReplicaContext* replica = ReplicaContext::current();
  if (replica && replica->example_offset() >= 0 && shape.rank() > 0) {
    attrs.stream = 0;  // positions in the global batch differ between replicas already
    attrs.offset = replica->example_offset() * shape.without_leading(1).num_elements();
  }
  return attrs;
}

Tensor nn::dropout(const Tensor& x, double rate) {
  return run(kDropout, {&x}, next_dropout(rate, x.shape()));
}

}  // namespace tandem
