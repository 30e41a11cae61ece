// The records of a BfcAllocator's chunks and the ordered trees of free chunks. Records are in one
// table and refer to each other by index, so that splitting, freeing and searching never allocate.
// Internal to the allocator, under its lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "device/allocator.h"

namespace tandem::bfc {

using Handle = std::uint32_t;
inline constexpr Handle kNone = 0;

struct Chunk {
  char* address = nullptr;
  std::size_t size = 0;
  Handle previous = kNone;  // neighbours in the region
  Handle next = kNone;
  Handle left = kNone;  // children in the bin's tree, if free
  Handle right = kNone;
  std::uint32_t priority = 0;
  MemoryTag tag = MemoryTag::kOther;
  bool in_use = false;
};

class ChunkTable {
 public:
  ChunkTable() : chunks_(1) {}

  Chunk& operator[](Handle handle) { return chunks_[handle]; }
  const Chunk& operator[](Handle handle) const { return chunks_[handle]; }

  // A new record. Invalidates references to records.
  Handle acquire() {
    if (unused_ != kNone) {
      const Handle handle = unused_;
      unused_ = chunks_[handle].next;
      return handle;
    }
    chunks_.emplace_back();
    const auto handle = static_cast<Handle>(chunks_.size() - 1);
    // Any fixed scatter of the handles works as the priorities of a treap.
    chunks_.back().priority = handle * 2654435761u ^ (handle * 2654435761u >> 15);
    return handle;
  }

  void release(Handle handle) {
    chunks_[handle].next = unused_;
    unused_ = handle;
  }

 private:
  std::vector<Chunk> chunks_;
  Handle unused_ = kNone;
};

// The free chunks of one bin, ordered by size and address: a treap.
class ChunkTree {
 public:
  bool empty() const { return root_ == kNone; }

  void insert(ChunkTable& chunks, Handle handle) {
    Chunk& chunk = chunks[handle];
    Handle* link = &root_;
    while (*link != kNone && chunks[*link].priority >= chunk.priority)
      link = child_towards(chunks[*link], chunk);
    // Splits the subtree into smaller and larger chunks.
    Handle tree = *link;
    *link = handle;
    Handle* smaller = &chunk.left;
    Handle* larger = &chunk.right;
    while (tree != kNone) {
      Chunk& top = chunks[tree];
      if (before(top, chunk)) {
        *smaller = tree;
        smaller = &top.right;
        tree = top.right;
      } else {
        *larger = tree;
        larger = &top.left;
        tree = top.left;
      }
    }
    *smaller = *larger = kNone;
  }

  void erase(ChunkTable& chunks, Handle handle) {
    const Chunk& chunk = chunks[handle];
    Handle* link = &root_;
    while (*link != handle) link = child_towards(chunks[*link], chunk);
    Handle smaller = chunk.left, larger = chunk.right;
    while (smaller != kNone && larger != kNone) {
      if (chunks[smaller].priority > chunks[larger].priority) {
        *link = smaller;
        link = &chunks[smaller].right;
        smaller = *link;
      } else {
        *link = larger;
        link = &chunks[larger].left;
        larger = *link;
      }
    }
    *link = smaller != kNone ? smaller : larger;
  }

  // The smallest chunk of at least `bytes`, the one at the lowest address if there are several;
  // kNone if there is none.
  Handle best_fit(const ChunkTable& chunks, std::size_t bytes) const {
    Handle best = kNone;
    for (Handle at = root_; at != kNone;) {
      if (chunks[at].size >= bytes) {
        best = at;
        at = chunks[at].left;
      } else {
        at = chunks[at].right;
      }
    }
    return best;
  }

  // REQUIRES: !empty().
  std::size_t largest(const ChunkTable& chunks) const {
    Handle at = root_;
    while (chunks[at].right != kNone) at = chunks[at].right;
    return chunks[at].size;
  }

 private:
  static bool before(const Chunk& a, const Chunk& b) {
    return a.size != b.size ? a.size < b.size : a.address < b.address;
  }
  static Handle* child_towards(Chunk& from, const Chunk& wanted) {
    return before(wanted, from) ? &from.left : &from.right;
  }

  Handle root_ = kNone;
};

}  // namespace tandem::bfc
