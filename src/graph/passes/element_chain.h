// Chains of element-wise operations, run on a few elements at a time so that intermediate results
// stay in the cache.
#pragma once

#include <span>
#include <vector>

#include "graph/block.h"
#include "graph/passes/tiles.h"

namespace tandem {

class ElementChain {
 public:
  // An input of a member: an external input of the chain, or the result of an earlier member.
  struct Operand {
    bool external = true;
    int index = 0;
  };
  struct Member : MemberAttrs {
    std::vector<Operand> inputs;
    DType dtype = float32;
    int buffer = 0;  // index of the tile buffer for its result
  };

  // The chain of `operation`, which may be a fused chain already. Its external inputs are the
  // operation's inputs. REQUIRES: is_chain(operation).
  static ElementChain of(const BlockOperation& operation);
  // Appends `operation`. `members`: the operations of the chain, in the order of appending. Inputs
  // that they do not compute become external inputs. REQUIRES: no other operation of the chain
  // reads those.
  void append(const BlockOperation& operation, const std::vector<const BlockOperation*>& members,
              std::vector<Value*>& externals);
  // Changes the index of external input i to place_of[i].
  void renumber(std::span<const int> place_of);

  bool empty() const { return members_.empty(); }
  // In order. The last result is the result of the chain.
  std::span<const Member> members() const { return members_; }
  // The number of tile buffers. A buffer is reused once its result has been read, so that a long
  // chain needs no more cache than a short one.
  int buffers() const { return buffers_; }
  // Computes elements [begin, begin + count) of `result`. `result` may share the memory of an
  // external input of the same size.
  void run(std::span<const TensorView> externals, const TensorView& result, DeviceImpl* workspace,
           std::int64_t begin, std::int64_t count) const;

 private:
  int vacant_buffer() const;
  void run_tile(std::span<const TensorView> externals, const TensorView& result,
                DeviceImpl* workspace, std::int64_t begin, std::int64_t count,
                std::byte* buffers) const;

  std::vector<Member> members_;
  int buffers_ = 0;
};

// The chains that the CUDA backend has kernels for.
struct CudaChains {
  // Whether a chain may have this operation.
  bool (*takes)(const BlockOperation& operation);
  // Whether a chain of such operations, with this many external inputs, can be a kernel. `within`:
  // a part of another operation's kernel.
  bool (*fits)(const ElementChain& chain, std::size_t externals, bool within);
  // Whether chains can be fused into this operation's kernel (OpDef::tiled_kernel).
  bool (*tiles)(const BlockOperation& operation);
};
// Called like register_cuda_kernels().
void register_cuda_chains(const CudaChains& chains);
// Returns null without the backend.
const CudaChains* cuda_chains();

// Whether its device can run `operation` as part of a chain, on any range of its elements.
bool is_chain(const BlockOperation& operation);

struct FusedElementwiseAttrs {
  ElementChain chain;
  TANDEM_FIELDS()
};
// A chain as one operation. Its inputs are the chain's external inputs.
extern const OpDef kFusedElementwise;

}  // namespace tandem
