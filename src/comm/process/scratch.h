// Memory that successive collectives reuse, since fresh memory costs a page fault per page.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

namespace tandem {

// One thread at a time. Must outlive its blocks.
class Scratch {
 public:
  struct Return {
    Scratch* scratch = nullptr;
    std::size_t bytes = 0;
    void operator()(std::byte* block) const { scratch->free_.emplace_back(bytes, block); }
  };
  using Block = std::unique_ptr<std::byte[], Return>;

  // A block of at least `bytes` bytes, of unspecified contents.
  Block take(std::size_t bytes) {
    const auto found = std::find_if(free_.begin(), free_.end(),
                                    [&](const auto& block) { return block.first >= bytes; });
    if (found != free_.end()) {
      const std::size_t size = found->first;
      Block block(found->second.release(), Return{this, size});
      free_.erase(found);
      return block;
    }
    free_.clear();  // no free block is large enough
    return Block(std::make_unique_for_overwrite<std::byte[]>(bytes).release(), Return{this, bytes});
  }

 private:
  std::vector<std::pair<std::size_t, std::unique_ptr<std::byte[]>>> free_;
};

}  // namespace tandem
