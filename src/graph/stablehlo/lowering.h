// Lowers single operations to StableHLO. Each family of operations defines its lowerings beside its
// kernels (ops/*/..._stablehlo.cc).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "core/registered.h"
#include "graph/node.h"
#include "graph/stablehlo/builder.h"

namespace tandem::stablehlo {

// A number that an attribute update changes in each run, such as a learning rate. The host computes
// it before the run: a row for each value that AttrUpdate's counter may have when it is used.
struct RunNumber {
  const Node* node = nullptr;
  std::shared_ptr<const void> attrs;  // before the update
  double (*of)(const void* attrs) = nullptr;
  std::int64_t rows = 1;
};

// The key of a random operation in each run; of control flow, how far the numbers of its random
// operations are shifted, as its number.
struct RunKey {
  const Node* node = nullptr;
  std::shared_ptr<const void> attrs;
};

// Where the numbers of a run come from: parameters of the module.
class RunParameters {
 public:
  virtual ~RunParameters() = default;
  // A scalar of float32 or float64.
  virtual Value number(RunNumber number, Element element) = 0;
  struct Key {
    Value seed, number, stream;  // scalars of 64-bit unsigned integers
    Value offset;  // the field "offset" of the attributes, as a 64-bit unsigned integer; else 0
  };
  virtual Key key(RunKey key) = 0;
};

// The key of a random operation as values of the module.
using KeyValues = RunParameters::Key;

// The argument of a lowering: the operation, its inputs, its attributes. The lowering sets every
// output with result(), and the new elements of every input that the operation writes with write().
class Context {
 public:
  Context(Builder& to, RunParameters& parameters, const Node& node,
          std::shared_ptr<const void> attrs, std::vector<Value> inputs,
          std::vector<TensorType> outputs);

  Builder& build;

  std::string_view op() const { return node_.op->name; }
  const Node& node() const { return node_; }
  std::size_t num_inputs() const { return inputs_.size(); }
  const Value& input(std::size_t index) const { return inputs_.at(index); }
  // The dtype and shape of an output.
  const TensorType& output(std::size_t index = 0) const { return outputs_.at(index); }
  std::size_t num_outputs() const { return outputs_.size(); }
  void result(std::size_t index, Value value);
  void result(Value value) { result(0, std::move(value)); }
  void write(std::size_t input, Value value);

  // Attributes: of a type that a header defines, or by the name of the field. The latter throw
  // InternalError for an unknown name.
  template <class A>
  const A& attrs() const {
    return *static_cast<const A*>(attrs_.get());
  }
  std::int64_t integer(std::string_view field) const;
  bool boolean(std::string_view field) const { return integer(field) != 0; }
  double real(std::string_view field) const;
  std::vector<std::int64_t> integers(std::string_view field) const;

  // A scalar that may change in each run: `of` applied to the attributes of type A.
  template <class A, double (*kOf)(const A&)>
  Value number(Element element) const {
    return number([](const void* attrs) { return kOf(*static_cast<const A*>(attrs)); }, element);
  }
  // The key of a random operation.
  KeyValues key() const;

  // Throws UnimplementedError "[Op] ... cannot be lowered to StableHLO: WHY".
  [[noreturn]] void refuse(std::string_view why) const;

  // The results that the lowering has set. Throws InternalError if they differ from those of the
  // operation.
  std::vector<Value> take_results();
  // The input's index, and its new elements.
  const std::vector<std::pair<std::size_t, Value>>& writes() const { return writes_; }

 private:
  Value number(double (*of)(const void* attrs), Element element) const;
  const AttrField& field(std::string_view name) const;

  RunParameters& parameters_;
  const Node& node_;
  std::shared_ptr<const void> attrs_;
  std::vector<Value> inputs_;
  std::vector<TensorType> outputs_;
  std::vector<Value> results_;
  std::vector<bool> has_result_;
  std::vector<std::pair<std::size_t, Value>> writes_;
  AttrFields fields_;
};

using LowerFn = void (*)(Context&);

struct Lowering {
  std::string_view op;  // the operation's name
  LowerFn lower;
};

// The lowerings of collectives (graph/collective.h).
std::span<const Lowering> collective_lowerings();
// All lowerings, sorted by the operation's name. ops/all_lowerings.cc registers the list.
extern constinit Registered<std::span<const Lowering>()> all_lowerings;
// Returns null if the operation has none.
LowerFn lowering_of(const OpDef& op);

}  // namespace tandem::stablehlo
