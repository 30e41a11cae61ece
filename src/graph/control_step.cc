#include "graph/control_step.h"

#include <optional>
#include <utility>

#include "core/status.h"
#include "device/copy.h"
#include "graph/graph.h"
#include "graph/program_cache.h"

namespace tandem {
namespace {

class RandomKeyScope {
 public:
  RandomKeyScope(RandomSequence* random, std::uint64_t offset, bool replay) : random_(random) {
    if (random_) random_->enter(offset, replay);
  }
  ~RandomKeyScope() {
    if (random_) random_->leave();
  }
  RandomKeyScope(const RandomKeyScope&) = delete;
  RandomKeyScope& operator=(const RandomKeyScope&) = delete;

 private:
  RandomSequence* random_;
};

bool read_flag(const std::byte* memory, DeviceImpl& device) {
  bool flag = false;
  static_assert(sizeof(flag) == 1);
  read_from(device, &flag, memory, 1, device.stream().record());
  return flag;
}

}  // namespace

struct ControlStep::Impl {
  using Kind = ControlFlow::Kind;
  struct RunnableBody {
    std::unique_ptr<BodyProgram> program;
    std::vector<std::size_t> feeds;  // indices in the frame
    std::vector<std::byte*> given;   // addresses in a run
  };

  const BlockOperation& operation;
  ProgramStep& step;
  const BodyBuilder builder;
  Control& control;
  const ControlFlow& flow;
  std::vector<RunnableBody> bodies;
  ProgramCache<RunnableBody> for_elements;  // by the sizes and devices of an element
  std::string key;
  Tensor flag;  // of a loop's condition
  std::vector<std::byte*> frame;
  std::vector<BodyProgram::Destination> destinations;
  std::vector<Tensor> element;
  std::vector<TensorType> element_specs;

  Impl(const BlockOperation& made_of, ProgramStep& its_step, BodyBuilder its_builder)
      : operation(made_of),
        step(its_step),
        builder(std::move(its_builder)),
        control(*made_of.control),
        flow(*control.flow),
        frame(flow.elements + made_of.inputs.size(), nullptr) {
    if (flow.kind == Kind::kWhile)
      flag = make_tensor(*control.bodies.front().block.fetches[0]->device, Shape::scalar(),
                         DType::kBool);
    for (BodyBlock& body : control.bodies)
      bodies.push_back(runnable(std::move(body.feeds), builder.build(std::move(body.block))));
    control.bodies.clear();
  }

  static RunnableBody runnable(std::vector<std::size_t> feeds,
                               std::unique_ptr<BodyProgram> program) {
    RunnableBody made{.program = std::move(program), .feeds = std::move(feeds)};
    made.given.resize(made.feeds.size());
    return made;
  }

  std::byte* input(std::size_t i) const {
    return static_cast<std::byte*>(step.context.inputs[static_cast<int>(i)].data);
  }
  std::byte* output(std::size_t i) const {
    return static_cast<std::byte*>(step.context.outputs[static_cast<int>(i)].data);
  }
  DeviceImpl& output_device(std::size_t i) const { return *operation.outputs[i]->device; }

  void run() {
    const bool is_gradient = flow.forward != nullptr;
    const RandomKeyScope scope(flow.random.get(), control.offset_before, is_gradient);
    for (std::size_t i = 0; i < operation.inputs.size(); ++i) frame[flow.elements + i] = input(i);
    if (flow.loops())
      loop();
    else
      branch();
  }

  // `mark`: records the state of the random generator; may be null.
  void run_body(std::size_t index, RunnableBody& body, RandomMark* mark = nullptr) {
    for (std::size_t i = 0; i < body.feeds.size(); ++i) body.given[i] = frame[body.feeds[i]];
    if (mark) flow.random->mark(*mark);
    body.program->run_at(body.given, destinations);
    const Body& traced = flow.bodies[index];
    if (!traced.updates) return;
    traced.graph->end_run();
    if (flow.random) flow.random->ran(index, mark);
  }

  // In a forward run, the mark that the gradient needs; null if there is no gradient.
  RandomMark* mark_of(std::size_t iteration) {
    if (flow.forward || !control.record || !flow.random) return nullptr;
    auto& marks = control.record->marks;
    if (marks.size() <= iteration) marks.resize(iteration + 1);
    return &marks[iteration];
  }
  // Gradients generate the random numbers of the forward run again.
  void restore_random(std::size_t body, std::size_t iteration) {
    if (flow.forward && flow.random) flow.random->restore(body, control.record->marks[iteration]);
  }

  // --- branches ---

  void branch() {
    const std::size_t index = read_flag(input(0), *operation.inputs[0]->device) ? 0 : 1;
    destinations.clear();
    for (std::size_t i = 0; i < operation.outputs.size(); ++i)
      destinations.push_back({output(i), &output_device(i)});
    restore_random(index, 0);
    run_body(index, bodies[index], mark_of(0));
  }

  // --- loops ---

  std::byte*& carried(std::size_t i) { return frame[flow.elements + i]; }
  bool keeps(std::size_t i) const {
    return !flow.forward && control.record && control.record->keeps[i];
  }

  void loop() {
    std::shared_ptr<ElementPass> pass;
    if (flow.source) pass = flow.source();
    keep_start();
    for (std::size_t k = 0;; ++k) {
      RunnableBody* body = next(k, pass.get());
      if (!body) break;
      if (flow.forward) restore_random(1, control.record->iterations - 1 - k);
      destinations.clear();
      for (std::size_t i = 0; i < flow.carried; ++i)
        destinations.push_back({destination(i, k), &output_device(i)});
      run_body(flow.bodies.size() - 1, *body, mark_of(k));
      for (std::size_t i = 0; i < flow.carried; ++i) carried(i) = destinations[i].memory;
      if (control.record && !flow.forward) control.record->iterations = k + 1;
    }
    element.clear();
    for (std::size_t i = 0; i < flow.carried; ++i) {
      DeviceImpl& device = output_device(i);
      if (carried(i) != output(i))
        copy_between(device, output(i), device, carried(i), operation.outputs[i]->bytes());
    }
  }

  // The program of iteration `k`; null if the loop has ended.
  RunnableBody* next(std::size_t k, ElementPass* pass) {
    if (flow.kind == Kind::kWhileGradient) {
      if (k == control.record->iterations) return nullptr;
      for (std::size_t i = 0; i < flow.elements; ++i)
        if (control.record->keeps[i])
          frame[i] = impl_of(control.record->kept[control.record->iterations - 1 - k][i]).data();
      return &bodies.back();
    }
    if (flow.maximum_iterations >= 0 && k == static_cast<std::size_t>(flow.maximum_iterations))
      return nullptr;
    if (pass) return pass->next(element) ? &body_for_element() : nullptr;
    const TensorImpl& result = impl_of(flag);
    destinations.assign(1, {result.data(), &result.device()});
    run_body(0, bodies.front());
    return read_flag(result.data(), result.device()) ? &bodies.back() : nullptr;
  }

  std::byte* destination(std::size_t i, std::size_t k) {
    if (keeps(i)) return kept(k + 1, i);
    return k % 2 == 0 ? output(i) : output(flow.carried + i);
  }

  std::byte* kept(std::size_t iteration, std::size_t i) {
    auto& kept = control.record->kept;
    if (kept.size() <= iteration) kept.resize(iteration + 1);
    kept[iteration].resize(flow.carried);
    Tensor& tensor = kept[iteration][i];
    const Value& value = *operation.outputs[i];
    if (!tensor.defined())
      tensor = make_tensor(*value.device, value.spec.shape, value.spec.dtype, operation.op->name);
    return impl_of(tensor).data();
  }

  void keep_start() {
    if (flow.forward || !control.record) return;
    control.record->iterations = 0;
    for (std::size_t i = 0; i < flow.carried; ++i) {
      if (!keeps(i)) continue;
      DeviceImpl& device = output_device(i);
      std::byte* start = kept(0, i);
      copy_between(device, start, device, carried(i), operation.outputs[i]->bytes());
      carried(i) = start;
    }
  }

  // --- loops over elements ---

  RunnableBody& body_for_element() {
    check_element();
    key.clear();
    for (std::size_t i = 0; i < element.size(); ++i) {
      frame[i] = impl_of(element[i]).data();
      append_to_key(key, element[i]);
    }
    if (RunnableBody* known = for_elements.find(key)) return *known;
    Frame elements;
    for (const Tensor& component : element)
      elements.push_back({impl_of(component), &impl_of(component).device()});
    BodyBlock body = control.body_for(elements);
    for_elements.put(key,
                     runnable(std::move(body.feeds),
                              builder.build_during_run(std::move(body.block), operation.name)));
    return *for_elements.find(key);
  }

  void check_element() const {
    if (element.size() != flow.elements)
      fail<InvalidArgumentError>("[{}] expected elements of {} tensors, got one of {}",
                                 operation.op->name, flow.elements, element.size());
    for (const Body::FrameFeed& feed : flow.bodies.back().feeds) {
      if (feed.from >= flow.elements) continue;
      const TensorType& expected = feed.tensor.node->outputs[0];
      const Tensor& got = element[feed.from];
      if (got.dtype() != expected.dtype || !expected.shape.matches(got.shape()))
        fail<InvalidArgumentError>(
            "[{}] tensor {} of an element: expected shape {} and dtype {}, as the loop was traced "
            "for, got {} and {}",
            operation.op->name, feed.from, expected.shape.to_string(), name_of(expected.dtype),
            got.shape().to_string(), name_of(got.dtype()));
    }
  }
};

ControlStep::ControlStep(const BlockOperation& operation, ProgramStep& step, BodyBuilder builder)
    : impl_(std::make_unique<Impl>(operation, step, std::move(builder))) {}
ControlStep::~ControlStep() = default;

const BlockOperation& ControlStep::operation() const { return impl_->operation; }
void ControlStep::run() { impl_->run(); }

}  // namespace tandem
