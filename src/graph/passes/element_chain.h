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
  // What a member reads: an external, or the result of an earlier member.
  struct Operand {
    bool external = true;
    int index = 0;
  };
  struct Member : MemberAttrs {
    std::vector<Operand> inputs;
    DType dtype = float32;
    int buffer = 0;  // which of the tile's buffers takes its result
  };

  // The chain of one operation, or of the many that `operation` already stands for. Its externals
  // are the operation's inputs. REQUIRES: is_chain(operation).
  static ElementChain of(const Operation& operation);
  // Appends `operation`: its inputs that `members` made, in the order in which they were appended,
  // are theirs; the others become externals. REQUIRES: no other operation of the chain reads those.
  void append(const Operation& operation, const std::vector<const Operation*>& members,
              std::vector<Value*>& externals);
  // Where external i will be found from now on.
  void renumber(std::span<const int> place_of);

  bool empty() const { return members_.empty(); }
  // In order; the last one's result is the chain's.
  std::span<const Member> members() const { return members_; }
  // How many results are kept at a time: a member's buffer is free again after the one that reads
  // it, so that a long chain takes no more of the cache than a short one.
  int buffers() const { return buffers_; }
  // Elements [begin, begin + count) of `result` from those of the externals. `result` may be the
  // memory of an external that is as large.
  void run(std::span<const TensorView> externals, const TensorView& result, Device* workspace,
           std::int64_t begin, std::int64_t count) const;

 private:
  int vacant_buffer() const;
  void run_tile(std::span<const TensorView> externals, const TensorView& result, Device* workspace,
                std::int64_t begin, std::int64_t count, std::byte* buffers) const;

  std::vector<Member> members_;
  int buffers_ = 0;
};

// Which chains the CUDA backend has kernels for.
struct CudaChains {
  // Whether a chain may have this operation.
  bool (*takes)(const Operation& operation);
  // Whether a chain of such operations, with so many externals, can be a kernel; `within`: a part
  // of another one.
  bool (*fits)(const ElementChain& chain, std::size_t externals, bool within);
  // Whether chains can be a part of this operation's kernel (OpDef::tiled_kernel).
  bool (*tiles)(const Operation& operation);
};
// As register_cuda_kernels().
void register_cuda_chains(const CudaChains& chains);
// Null without the backend.
const CudaChains* cuda_chains();

// Whether `operation` can be run on any part of its elements alone, by its device's kernels for
// chains.
bool is_chain(const Operation& operation);

struct FusedElementwiseAttrs {
  ElementChain chain;
  TANDEM_FIELDS()
};
// A chain as one operation: its inputs are the chain's externals.
extern const OpDef kFusedElementwise;

}  // namespace tandem
