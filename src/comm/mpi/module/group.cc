#include "comm/mpi/module/group.h"

#include <algorithm>
#include <cstring>
#include <thread>

#include "comm/stall.h"
#include "core/log.h"
#include "core/status.h"

namespace tandem::mpi_backend {
namespace {

using Clock = std::chrono::steady_clock;

std::uint64_t hash_of(const std::string& name) {
  std::uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a
  for (const char letter : name)
    hash = (hash ^ static_cast<unsigned char>(letter)) * 0x100000001b3u;
  return hash;
}

}  // namespace

MpiGroup::MpiGroup(MpiOptions options)
    : options_(std::move(options)),
      session_(MpiSession::get(options_)),
      name_(std::to_string(session_.next_group())),
      rank_(session_.rank()),
      size_(session_.size()) {
  for (int rank = 0; rank < size_; ++rank) world_.push_back(rank);
  messages_ = duplicate(session_, MPI_COMM_WORLD, options_, name_);
  set_up();
}

MpiGroup::MpiGroup(MpiGroup& parent, std::span<const int> ranks, const std::string& name)
    : options_(parent.options_),
      session_(parent.session_),
      name_(name),
      size_(static_cast<int>(ranks.size())) {
  rank_ = static_cast<int>(std::find(ranks.begin(), ranks.end(), parent.rank_) - ranks.begin());
  for (int rank : ranks) world_.push_back(parent.world_[static_cast<std::size_t>(rank)]);
  names_ = RankNames(world_);
  assemble(parent, ranks);

  MPI_Group all, some;
  const int tag = static_cast<int>(hash_of(name_) % kSplitTags);
  // Waits only briefly, because all ranks have assembled.
  auto lock = session_.enter();
  check(MPI_Comm_group(parent.messages_, &all), "MPI_Comm_group");
  check(MPI_Group_incl(all, size_, ranks.data(), &some), "MPI_Group_incl");
  if (session_.multithreaded()) lock.unlock();
  check(MPI_Comm_create_group(parent.messages_, some, tag, &messages_), "MPI_Comm_create_group");
  if (!lock.owns_lock()) lock.lock();
  MPI_Group_free(&some);
  MPI_Group_free(&all);
  check(MPI_Comm_set_errhandler(messages_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  lock.unlock();
  set_up();
}

void MpiGroup::set_up() {
  id_ = hash_of(name_);
  left_.resize(static_cast<std::size_t>(size_));
  data_ = duplicate(session_, messages_, options_, name_);
}

namespace {

// The requests of a group that assembles. The destructor cancels those that are incomplete.
// REQUIRES: the session is entered whenever MPI is called; the destructor enters it.
struct Roll {
  Roll(MpiSession& of, std::size_t ranks)
      : session(of), theirs(ranks), received(ranks, MPI_REQUEST_NULL), sent(received) {}
  ~Roll() {
    const auto lock = session.enter_if_running();
    if (!lock) return;
    for (MPI_Request& request : received)
      if (request != MPI_REQUEST_NULL) {
        MPI_Cancel(&request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);  // does not wait for a peer
      }
    for (MPI_Request& request : sent)
      // so short that MPI has copied it
      if (request != MPI_REQUEST_NULL) MPI_Request_free(&request);
  }
  MpiSession& session;
  std::vector<std::uint64_t> theirs;
  std::vector<MPI_Request> received, sent;
};

}  // namespace

// MPI creates communicators of some ranks in a call that waits without a limit.
void MpiGroup::assemble(MpiGroup& parent, std::span<const int> ranks) {
  const std::uint64_t id = hash_of(name_);
  const int tag = kSplitTags + static_cast<int>(id % kSplitTags);
  Roll roll(session_, ranks.size());
  {
    const auto lock = session_.enter();
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      if (ranks[i] == parent.rank_) continue;
      check(MPI_Irecv(&roll.theirs[i], sizeof(id), MPI_BYTE, ranks[i], tag, parent.messages_,
                      &roll.received[i]),
            "MPI_Irecv");
      check(MPI_Isend(&id, sizeof(id), MPI_BYTE, ranks[i], tag, parent.messages_, &roll.sent[i]),
            "MPI_Isend");
    }
  }
  const auto deadline = Clock::now() + options_.time_limit;
  LongWait wait;
  for (;;) {
    std::vector<int> missing, here;
    {
      const auto lock = session_.enter();
      for (std::size_t i = 0; i < ranks.size(); ++i) {
        int in = 1;
        check(MPI_Test(&roll.received[i], &in, MPI_STATUS_IGNORE), "MPI_Test");
        (in ? here : missing).push_back(ranks[i]);
      }
      if (missing.empty()) return;
      parent.look_for_failure();
    }
    if (options_.membership && options_.membership->failed()) options_.membership->throw_failure();
    const auto describe = [&](std::chrono::milliseconds time) {
      return fmt::format("[mpi] {} did not join group '{}' within {} ms; {} {} waiting",
                         list_ranks(missing, parent.names_), name_, time.count(),
                         list_ranks(here, parent.names_), here.size() == 1 ? "is" : "are");
    };
    if (Clock::now() > deadline) throw DeadlineExceededError(describe(options_.time_limit));
    if (here.front() == parent.rank_) wait.look(describe);  // the first warns for all
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
}

MpiGroup::~MpiGroup() {
  const auto lock = session_.enter_if_running();
  if (!lock || failed_) return;  // running calls may still use the communicators
  try {
    notify_all(GroupFailure::kNone, "");
  } catch (const Error& error) {
    logging::debug("[mpi] no goodbye from group '{}': {}", name_, error.what());
  }
  MPI_Comm_free(&messages_);
  MPI_Comm_free(&data_);
}

void MpiGroup::notify_all(GroupFailure failure, const std::string& text) {
  Notice notice{.group = id_, .failure = failure, .rank = rank_};
  std::memcpy(notice.text, text.data(), std::min(text.size(), sizeof(notice.text) - 1));
  for (int peer = 0; peer < size_; ++peer)
    if (peer != rank_) session_.send(world_[static_cast<std::size_t>(peer)], notice);
}

void MpiGroup::look_for_failure() {
  for (const Notice& notice : session_.take_notices(id_)) {
    if (notice.failure != GroupFailure::kNone) throw_failure(notice.failure, notice.text);
    if (notice.rank >= 0 && notice.rank < size_)
      left_[static_cast<std::size_t>(notice.rank)] = Clock::now();
  }
}

bool MpiGroup::has_left(int rank) const {
  const auto at = static_cast<std::size_t>(rank);
  const auto since = left_[at] ? left_[at] : session_.ended(world_[at]);
  return since && Clock::now() - *since > std::chrono::milliseconds(100);
}

void MpiGroup::abort(GroupFailure failure, const std::string& text) noexcept {
  failed_ = true;
  try {
    notify_all(failure, text);
  } catch (const std::exception& error) {
    logging::warn("[mpi] could not publish the failure of group '{}' to its other ranks: {}", name_,
                  error.what());
  }
}

}  // namespace tandem::mpi_backend
