// Memory that one collective after the other uses: fresh memory costs a fault a page.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

namespace tandem {

// Belongs to one thread at a time, and outlives its blocks.
class Scratch {
 public:
  struct Return {
    Scratch* scratch = nullptr;
    std::size_t bytes = 0;
    void operator()(std::byte* block) const { scratch->free_.emplace_back(bytes, block); }
  };
  using Block = std::unique_ptr<std::byte[], Return>;

  // At least so many bytes; what they hold is left open.
  Block take(std::size_t bytes) {
    const auto found = std::find_if(free_.begin(), free_.end(),
                                    [&](const auto& block) { return block.first >= bytes; });
    if (found != free_.end()) {
      const std::size_t size = found->first;
      Block block(found->second.release(), Return{this, size});
      free_.erase(found);
      return block;
    }
    free_.clear();  // none was large enough
    return Block(std::make_unique_for_overwrite<std::byte[]>(bytes).release(), Return{this, bytes});
  }

 private:
  std::vector<std::pair<std::size_t, std::unique_ptr<std::byte[]>>> free_;
};

}  // namespace tandem
