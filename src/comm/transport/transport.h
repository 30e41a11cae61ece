// Messages between ranks by functions of the program (tandem_transport.h).
#pragma once

#include <tandem_transport.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "comm/group_failure.h"
#include "comm/process/transfers.h"
#include "comm/signature.h"

namespace tandem {

// The functions for one group, and the notices of its ranks: the last that a rank sends, when it
// fails or leaves. Thread-safe. All functions throw AbortedError once nothing can be sent any more,
// and UnavailableError if a function fails.
class Transport {
 public:
  // Releases the functions once all ranks have left: a message that arrives later would go into the
  // group that gets the same number from MPI. Throws InvalidArgumentError, and releases them, if
  // something is missing.
  static std::shared_ptr<Transport> make(const tandem_transport& functions);
  ~Transport();
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  int rank() const { return functions_.rank; }
  int size() const { return functions_.ranks; }
  bool allows_any_thread() const { return functions_.threads == TANDEM_ANY_THREAD; }
  std::size_t longest() const;  // bytes of a message

  void* send(int peer, int tag, const std::byte* data, std::size_t bytes);
  void* receive(int peer, int tag, std::byte* data, std::size_t bytes);
  // Whether it is complete, which makes it null.
  bool complete(void*& request);
  // Ends a receive. Returns whether its memory is free.
  bool cancel(void*& request) noexcept;

  // Sends this rank's notice; only the first counts. kNone: it leaves.
  void notify_all(GroupFailure failure, const std::string& text) noexcept;
  // Throws the error of a rank that has failed. Returns since when a rank is known to have left.
  std::optional<std::chrono::steady_clock::time_point> left(int peer);

  // A group of some ranks, each of which calls this with an equal name. Waits for them. Throws
  // DeadlineExceededError that names those that did not call.
  std::shared_ptr<Transport> split(std::span<const int> ranks, const std::string& name,
                                   const RankNames& names, std::chrono::milliseconds limit);

 private:
  struct Notice {
    GroupFailure failure = GroupFailure::kNone;
    char text[1020] = {};
  };
  struct Peer {
    Notice notice;
    void* request = nullptr;  // of its notice
    std::optional<std::chrono::steady_clock::time_point> left;
  };

  explicit Transport(const tandem_transport& functions);
  static void retire(Transport* transport) noexcept;
  static void look_at_retired() noexcept;
  // Posts the receives of notices.
  void open();
  bool all_have_left();
  void end() noexcept;
  // The functions below REQUIRE the lock.
  void expect_alive() const;
  void check(std::int32_t code, const char* what, int peer) const;
  bool is_done(void*& request);
  bool is_known(Peer& peer);  // its notice

  tandem_transport functions_;
  std::mutex mutex_;
  bool ended_ = false;
  std::set<void*> receives_;  // those that are open
  std::vector<Peer> peers_;
  std::optional<Notice> mine_;
  std::vector<void*> sent_;  // requests of `mine_`
};

// The transfers of a collective or message. Phase p has the tag `tag` + p.
class TransportTransfers final : public Transfers {
 public:
  TransportTransfers(Transport& transport, int tag) : transport_(transport), tag_(tag) {}

  Id send(int peer, int phase, const std::byte* data, std::size_t bytes) override;
  Id receive(int peer, int phase, std::byte* data, std::size_t bytes) override;
  bool complete(Id id) override;
  // MPI must not write to memory that it is still sending.
  bool receives_into_sent() const override { return false; }
  // Cancels the receives. Returns whether none of the memory is in use any more.
  bool cancel() noexcept;

 private:
  // A transfer that is longer than a message may be consists of several, one after the other.
  struct Part {
    void* request = nullptr;  // null: complete
    bool sends = false;
    bool continues = false;  // in the next one
    bool in_use = false;     // its memory, although the request has ended
  };
  template <class Start>
  Id start(bool sends, std::size_t bytes, const Start& start);

  Transport& transport_;
  const int tag_;
  std::vector<Part> parts_;
};

// Tags. MPI has at least 2^15.
inline constexpr int kNoticeTag = 0, kAnnouncementTag = 1, kSplitTag = 2;
inline constexpr int kSplitTags = 1 << 10;   // this many after kSplitTag
inline constexpr int kMessageTag = 1 << 12;  // two for each message
inline constexpr int kMessages = 1 << 12;    // with one peer, before tags repeat
inline constexpr int kCollectiveTag = 3 << 12;
inline constexpr int kCollectives = 5 << 10;  // before tags repeat, with kPhases each

}  // namespace tandem
