// The copies and reductions of each kind of collective in shared memory.
#pragma once

#include <vector>

#include "comm/process/backend.h"
#include "comm/shm/group.h"

namespace tandem::shm {

// How the data of a collective moves.
struct ShmPlan {
  enum class Method {
    kOnce,    // every rank puts pieces into its ring and takes what it needs from the other rings
    kSliced,  // as kOnce, but each rank also reduces its slice, and the others take the results
    kDirect,  // on the ranks' own buffers in their arenas, without copies to the rings
  };
  Method method = Method::kOnce;
  std::uint32_t pieces = 0;
  // elements per piece; for collectives with one buffer per pair of ranks: per share of a piece
  std::int64_t piece = 0;
  // kDirect: the number of stretches that each rank's slice is divided into. Any rank may reduce a
  // stretch. 0: each rank processes its own data only.
  std::uint32_t stretches = 0;
};

// One rank's part of one collective. put, reduce and take agree on the contents of a piece.
class ShmDataExchange {
 public:
  ShmDataExchange(ShmGroup& group, const Collective& collective);

  // The offset of the rank's buffers that peers may read; -1: they are not contiguous in its arena.
  std::int64_t offset() const { return offset_; }
  // Whether one piece holds all data, so little that putting it before the others call is fastest.
  bool small() const { return small_; }
  // REQUIRES: small(), or every rank has called. Throws as ShmGroup::buffer_of() does.
  ShmPlan make_plan();

  // Piece k of the collective is piece `number` of the rings.
  void put(const ShmPlan& plan, std::uint32_t k, std::uint64_t number) const;
  void reduce(const ShmPlan& plan, std::uint32_t k, std::uint64_t number);
  void take(const ShmPlan& plan, std::uint32_t k, std::uint64_t number);
  void process_directly();
  // Processes stretch k of the slice of `rank`.
  void process_directly(const ShmPlan& plan, int rank, std::uint32_t k);

 private:
  struct ElementRange {
    std::int64_t begin, end;
  };
  std::int64_t offset_of(int rank) const;
  bool all_have_published() const;
  // Looks up the buffers that ranks publish in their arenas.
  void find_published_buffers();
  std::size_t bytes_published_by(int rank) const;
  ShmPlan cut_into_pieces() const;
  ElementRange range(const ShmPlan& plan, std::uint32_t k, std::int64_t count) const;
  ElementRange slice(ElementRange all, int rank) const;
  // The k-th of `parts` parts of `all`, in whole cache lines, so that no two ranks write to one
  // line.
  ElementRange part(ElementRange all, std::int64_t k, std::int64_t parts) const;
  std::byte* place(int rank, std::int64_t at) const;  // an address in a rank's published buffer
  std::byte* own(const Buffer& buffer, std::int64_t at) const {
    return static_cast<std::byte*>(buffer.data) + at * element_;
  }
  // The part of a piece that rank `from` sends to rank `to`.
  std::byte* share(int from, int to, std::uint64_t number) const;
  // Calls body(data, at, count) for each contiguous run of this rank's buffers within `span`.
  template <class Body>
  void for_runs(ElementRange span, const Body& body) const;
  // Copies to memory that a peer will read.
  void give(std::byte* to, const std::byte* from, std::int64_t bytes) const {
    group_.peer_copy().copy(to, from, static_cast<std::size_t>(bytes));
  }
  void combine_into(std::span<void* const> outputs, std::int64_t count) const;
  void check_received(const std::byte* share, int from) const;
  void take_shares(const ShmPlan& plan, std::uint32_t k, std::uint64_t number);

  ShmGroup& group_;
  const Collective& collective_;
  const Signature& signature_;
  int me_, ranks_;
  std::int64_t element_;      // bytes
  std::int64_t share_bytes_;  // of the share of a piece for each rank
  std::int64_t offset_ = -1;
  bool small_ = false;
  std::vector<std::byte*> published_;  // by rank: published buffers
  std::vector<const void*> inputs_;    // by rank: arguments of combine_into
  std::vector<void*> outputs_;         // the same, for the direct method
};

}  // namespace tandem::shm
