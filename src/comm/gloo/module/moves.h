// The data of one collective, moved by a thread that waits for it.
//
// What is reduced goes round in two steps: every rank gets its slice from all others and combines
// it, in the order of the ranks; then, where all want the result, it sends it to all. That is as
// little as any way sends, in two steps whatever the number of ranks, and the same bits as the
// other backends of ours.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "comm/gloo/module/line.h"
#include "comm/process/backend.h"
#include "comm/process/contiguous.h"
#include "comm/process/scratch.h"

namespace tandem::gloo_backend {

// What a rank gives to a collective goes with its announcement where it is little and all want it:
// half the way of a small all-reduce is the announcement. So many bytes at most.
constexpr std::size_t kSmallBytes = 8 << 10;
// How many of this rank's bytes that are; 0: none.
std::size_t bytes_with_announcement(const Collective& collective);

class Moves {
 public:
  // `steps` counts what has arrived.
  Moves(Line& line, const Collective& collective, const Mesh& mesh, Scratch& scratch,
        std::atomic<std::uint64_t>& steps);
  // What may set out before the others have announced the same: nobody takes it for what it is not.
  void begin();
  // `small` is what came with the announcements, by rank. REQUIRES: they agree.
  void run(std::span<const std::byte* const> small);

 private:
  struct Share {
    std::byte* data = nullptr;
    std::int64_t count = 0;  // elements
  };
  // Of every rank's elements one part, under way to the rank that combines it.
  struct Window {
    Scratch::Block others;  // what arrives, a part a rank
    Share mine;
    std::vector<Post> sent, received;
  };

  void all_reduce();
  void all_reduce_small(const Share& all);
  void reduce(const Share& all);
  void reduce_scatter(const std::vector<Share>& shares, std::byte* result);
  void broadcast(const Share& all);
  void all_gather(const std::byte* mine, const std::vector<Share>& gathered);
  void all_to_all(const std::vector<Share>& sent, const std::vector<Share>& received);
  void agree_on_counts(const std::vector<Share>& sent, const std::vector<Share>& received);

  // The others' elements of this rank's share are on their way from now on.
  Window open_window(const std::vector<Share>& shares);
  // Waits for them, and combines them to `result`.
  void combine_window(Window& window, std::byte* result);
  void post_send(std::vector<Post>& posts, int peer, int phase, const Share& share);
  void post_recv(std::vector<Post>& posts, int peer, int phase, const Share& share);
  void wait_all(std::vector<Post>& posts);

  std::uint64_t slot(int phase) const;
  // A rank's share each of what is combined at a time, from element `begin` on.
  std::vector<Share> slices_at(std::int64_t begin) const;
  std::vector<Share> slices_of(const Share& all) const;
  Share part(const Share& share, std::int64_t begin, std::int64_t end) const;
  std::vector<Share> shares_of(std::span<const Buffer> buffers) const;

  Line& line_;
  const Collective& collective_;
  const RankNames& names_;
  const int rank_, size_;
  const std::size_t element_;
  std::span<const std::byte* const> small_;
  Scratch& scratch_;
  std::atomic<std::uint64_t>& steps_;
  // Of a large all-reduce.
  std::optional<Contiguous> all_;
  std::vector<Share> slices_;
  Window window_;
};

}  // namespace tandem::gloo_backend
