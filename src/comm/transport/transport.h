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
#include "comm/membership.h"
#include "comm/process/transfers.h"
#include "comm/signature.h"

namespace tandem {

// A group that is made of some ranks of another.
struct SplitOptions {
  std::string name;  // the same on its ranks
  RankNames names;   // of the other group's ranks
  std::chrono::milliseconds time_limit = std::chrono::minutes(30);
  std::shared_ptr<const Membership> membership;  // null: not checked
};

// The functions for one group, and the notices of its ranks: the last that a rank sends, when it
// fails or leaves. Thread-safe; one thread at a time calls functions, whatever the group. All
// functions throw AbortedError once nothing can be sent any more, and UnavailableError if a
// function fails.
class Transport {
 public:
  // Releases the functions once all ranks have left: a message that arrives later would go into the
  // group that gets the same number from MPI. Throws InvalidArgumentError, and releases them, if
  // something is missing. `label`: of error messages.
  static std::shared_ptr<Transport> make(const tandem_transport& functions,
                                         const char* label = "transport");
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
  // Whether a send is complete; if not, it stays under way.
  bool end_send(void*& request) noexcept;

  // Sends this rank's notice; only the first counts. kNone: it leaves.
  void notify_all(GroupFailure failure, const std::string& text) noexcept;
  // Throws the error of a rank that has failed. Returns since when a rank is known to have left.
  std::optional<std::chrono::steady_clock::time_point> left(int peer);

  // A group of some ranks, each of which calls this with an equal name. Waits for them. Throws
  // DeadlineExceededError that names those that did not call.
  std::shared_ptr<Transport> split(std::span<const int> ranks, const SplitOptions& options);

  // The lock under which functions are called, for other calls of the same library.
  [[nodiscard]] static std::unique_lock<std::mutex> enter();
  // The process is about to end: its ranks leave all groups. Returns false if a transfer could not
  // be cancelled, which MPI_Finalize would wait for.
  static bool leave_all() noexcept;
  // Memory of a transfer that could not be cancelled: any call of a function may access it.
  static void keep_for_ever(std::shared_ptr<void> memory);

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

  Transport(const tandem_transport& functions, const char* label);
  static void retire(Transport* transport) noexcept;
  void meet(std::span<const int> ranks, int number, const SplitOptions& options);
  void end() noexcept;
  // The functions below REQUIRE the lock.
  static void release_retired() noexcept;
  // Posts the receives of notices.
  void open();
  bool all_have_left();
  void notify(GroupFailure failure, const std::string& text) noexcept;
  void* post(int peer, int tag, std::byte* data, std::size_t bytes);
  void expect_alive() const;
  void check(std::int32_t code, const char* what, int peer) const;
  bool is_done(void*& request);
  bool is_known(Peer& peer);  // its notice

  tandem_transport functions_;
  const char* const label_;
  bool retired_ = false, ended_ = false;
  bool stuck_ = false;        // a transfer could not be cancelled
  std::set<void*> receives_;  // those that are open
  std::vector<Peer> peers_;
  std::optional<Notice> mine_;
  std::vector<void*> sent_;  // requests of `mine_`
};

// The transfers of a collective or message. Phase p has the tag `tag` + p.
class TransportTransfers final : public Transfers {
 public:
  // `longest`: bytes of a message.
  TransportTransfers(Transport& transport, int tag, std::size_t longest)
      : transport_(transport), tag_(tag), longest_(longest) {}

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
  const std::size_t longest_;
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
