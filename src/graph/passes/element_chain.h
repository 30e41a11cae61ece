// Element-wise operations one behind the other, run on a few elements at a time, so that what they
// hand to each other stays in the cache.
#pragma once

#include <span>
#include <vector>

#include "graph/block.h"
#include "graph/passes/tiles.h"

namespace tandem {

class ElementChain {
 public:
  // The chain of one operation, or of the many that `operation` already stands for. Its externals
  // are the operation's inputs. REQUIRES: is_chain(operation).
  static ElementChain of(const Operation& operation);
  // Appends `operation`: its inputs that `members` made, in the order in which they were appended,
  // are theirs; the others become externals.
  void append(const Operation& operation, const std::vector<const Operation*>& members,
              std::vector<Value*>& externals);
  // Where external i will be found from now on.
  void renumber(std::span<const int> place_of);

  bool empty() const { return members_.empty(); }
  // Elements [begin, begin + count) of `result` from those of the externals. `result` may be the
  // memory of an external that is as large.
  void run(std::span<const TensorView> externals, const TensorView& result, Device* workspace,
           std::int64_t begin, std::int64_t count) const;

 private:
  // What a member reads: an external, or the result of an earlier member.
  struct Operand {
    bool external = true;
    int index = 0;
  };
  struct Member : MemberAttrs {
    std::vector<Operand> inputs;
    DType dtype = float32;
  };
  void run_tile(std::span<const TensorView> externals, const TensorView& result, Device* workspace,
                std::int64_t begin, std::int64_t count, std::byte* buffers) const;

  std::vector<Member> members_;  // the last one's result is the chain's
};

// Whether `operation` can be run on any part of its elements alone, on the host's threads.
bool is_chain(const Operation& operation);

struct FusedElementwiseAttrs {
  ElementChain chain;
  template <class F>
  void fields(F&&) const {}
};
// A chain as one operation: its inputs are the chain's externals.
extern const OpDef kFusedElementwise;

}  // namespace tandem
