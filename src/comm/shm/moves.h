// What is copied and combined where, for each kind of collective.
#pragma once

#include <vector>

#include "comm/process/backend.h"
#include "comm/shm/group.h"

namespace tandem::shm {

// How a collective goes.
struct Plan {
  enum class Way {
    kOnce,    // every rank puts a piece into its ring, and takes what it needs from the others'
    kSliced,  // and in between reduces its slice of all, which the others take
    kDirect,  // in the ranks' own buffers, which lie in their arenas: nothing is put
  };
  Way way = Way::kOnce;
  std::uint32_t pieces = 0;
  std::int64_t piece = 0;  // elements of a piece; of each rank's share where ranks have shares
  // Of kDirect: in how many stretches each rank's slice is reduced, by that rank or another; 0:
  // each rank does what it needs itself.
  std::uint32_t stretches = 0;
};

// One rank's side of one collective. What a piece holds is a contract between put, reduce and take.
class Moves {
 public:
  Moves(Group& group, const Collective& collective);

  // Of the rank's buffers that peers may read; -1: they are not one run in the rank's arena.
  std::int64_t offset() const { return offset_; }
  // Whether one piece holds all, and so little that putting it at once is the fastest way.
  bool small() const { return small_; }
  // REQUIRES: small(), or every rank has called. Throws what Group::buffer_of() does.
  Plan make_plan();

  // Piece k of the collective is piece `number` of the rings.
  void put(const Plan& plan, std::uint32_t k, std::uint64_t number) const;
  void reduce(const Plan& plan, std::uint32_t k, std::uint64_t number);
  void take(const Plan& plan, std::uint32_t k, std::uint64_t number);
  void direct();
  // Stretch k of the slice of `rank`.
  void direct(const Plan& plan, int rank, std::uint32_t k);

 private:
  struct Span {
    std::int64_t begin, end;
  };
  std::int64_t offset_of(int rank) const;
  bool all_give_directly() const;
  // Finds the buffers that ranks give directly.
  void find_given();
  std::size_t bytes_given_by(int rank) const;
  Plan cut_into_pieces() const;
  Span range(const Plan& plan, std::uint32_t k, std::int64_t count) const;
  Span slice(Span all, int rank) const;
  // The k-th of so many parts of `all`, in whole lines, so that no two ranks write to one.
  Span part(Span all, std::int64_t k, std::int64_t parts) const;
  std::byte* place(int rank, std::int64_t at) const;  // of what a rank gives directly
  std::byte* own(const Buffer& buffer, std::int64_t at) const {
    return static_cast<std::byte*>(buffer.data) + at * element_;
  }
  // A piece's part for rank `to`.
  std::byte* share(int from, int to, std::uint64_t number) const;
  // Calls body(data, at, count) for each run of this rank's buffers within [from, to).
  template <class Body>
  void for_runs(Span span, const Body& body) const;
  // Copies to where a peer will read it.
  void give(std::byte* to, const std::byte* from, std::int64_t bytes) const {
    group_.peer_copy().copy(to, from, static_cast<std::size_t>(bytes));
  }
  void combine_into(std::span<void* const> outputs, std::int64_t count) const;
  void check_received(const std::byte* share, int from) const;
  void take_shares(const Plan& plan, std::uint32_t k, std::uint64_t number);

  Group& group_;
  const Collective& collective_;
  const Signature& signature_;
  int me_, ranks_;
  std::int64_t element_;      // bytes
  std::int64_t share_bytes_;  // of a piece that is shared out among the ranks
  std::int64_t offset_ = -1;
  bool small_ = false;
  std::vector<std::byte*> given_;    // by rank; of what is direct
  std::vector<const void*> inputs_;  // by rank; for combine_into
  std::vector<void*> outputs_;       // likewise, of what is direct
};

}  // namespace tandem::shm
