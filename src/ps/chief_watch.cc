#include "ps/chief_watch.h"

#include <algorithm>
#include <fstream>
#include <utility>

#include "core/atomic_file.h"
#include "core/log.h"
#include "core/random_number.h"
#include "core/status.h"
#include "ps/tensor_message.h"

namespace tandem::ps {
namespace {

using Clock = std::chrono::steady_clock;

std::filesystem::path file_in(const std::filesystem::path& directory) {
  return directory.empty() ? std::filesystem::path() : directory / "run";
}

}  // namespace

ChiefWatch::ChiefWatch(std::string type, int index, const std::filesystem::path& directory,
                       std::uint64_t updates)
    : name_(fmt::format("{}:{}", type, index)),
      file_(file_in(directory)),
      incarnation_(random_number()),
      heard_(Clock::now()) {
  std::ifstream in(file_);
  if (file_.empty() || !in) return;
  std::uint64_t restart = 0;
  if (!(in >> run_) || run_ == 0) fail<DataLossError>("[Server] '{}' is damaged", file_.string());
  while (in >> restart) restarts_.push_back(restart);
  restarts_.push_back(updates);
  // A full disk has room for a number at the end of a small file.
  if (!(std::ofstream(file_, std::ios::app) << updates << '\n' << std::flush)) keep();
}

void ChiefWatch::keep() {
  if (file_.empty()) return;
  std::string text = std::to_string(run_) + '\n';
  for (const std::uint64_t restart : restarts_) text += std::to_string(restart) + '\n';
  try {
    AtomicFile file(file_, "Server");
    file.write(text.data(), text.size());
    file.commit();
    kept_ = true;
  } catch (const Error& error) {
    if (std::exchange(kept_, false))
      logging::warn("{}: until it can be written, {} cannot continue after a restart", error.what(),
                    name_);
  }
}

proto::AttachReply ChiefWatch::attach(const proto::AttachRequest& request) {
  const std::string expected = fmt::format("{}:{}", request.type(), request.index());
  if (expected != name_)
    fail<FailedPreconditionError>("[Server] this task is {}, and the chief expects {} here", name_,
                                  expected);
  if (request.run() == 0) fail<InvalidArgumentError>("[Server] {}: expected a run, got 0", name_);
  const std::lock_guard lock(mutex_);
  if (run_ == 0) {
    run_ = request.run();
    keep();
    logging::info("[Server] {} serves the chief", name_);
  }
  if (run_ != request.run())
    fail<FailedPreconditionError>(
        "[Server] {} serves another chief, or an earlier run of this one{}: restart the task",
        name_,
        restarts_.empty()
            ? ""
            : fmt::format(", whose snapshots are in '{}'", file_.parent_path().string()));
  if (!kept_) keep();
  heard_ = Clock::now();
  proto::AttachReply reply;
  reply.set_incarnation(incarnation_);
  reply.mutable_life()->mutable_restarts()->Assign(restarts_.begin(), restarts_.end());
  return reply;
}

void ChiefWatch::end(std::uint64_t run) {
  const std::lock_guard lock(mutex_);
  if (run != run_ || run == 0) return;
  ended_ = true;
  changed_.notify_all();
}

bool ChiefWatch::wait(std::chrono::milliseconds limit, std::chrono::milliseconds time) {
  const Clock::time_point last = Clock::now() + time;
  std::unique_lock lock(mutex_);
  while (!ended_ && Clock::now() < last) {
    const Clock::time_point end = heard_ + limit;
    if (Clock::now() >= end)
      fail<UnavailableError>("[Server] {} has not heard of the chief for {} ms", name_,
                             limit.count());
    changed_.wait_until(lock, std::min(end, last));
  }
  return ended_;
}

void ChiefWatch::describe(proto::StatusReply& reply) const {
  reply.set_task(name_);
  reply.set_incarnation(incarnation_);
  const std::lock_guard lock(mutex_);
  reply.set_attached(run_ != 0 && !ended_);
  const auto silence = std::chrono::floor<std::chrono::milliseconds>(Clock::now() - heard_);
  reply.set_chief_silence_ms(static_cast<std::uint64_t>(silence.count()));
}

void serve(rpc::Server& server, ChiefWatch& watch) {
  server.handle(kAttach, [&watch](const rpc::CallContext&, const rpc::Message& request) {
    return message_of(watch.attach(parse<proto::AttachRequest>(request, kAttach)));
  });
  server.handle(kEnd, [&watch](const rpc::CallContext&, const rpc::Message& request) {
    watch.end(parse<proto::EndRequest>(request, kEnd).run());
    return rpc::Message();
  });
}

}  // namespace tandem::ps
