// The files from which a restarted parameter server continues.
//
//   state-G   what the store held when log G began: written beside, then renamed
//   log-G     what has changed since, appended before it is applied
//   spare     a log that is not needed any more, for the next one
//
// The bytes are written to the system before a change is acknowledged, so the death of the process
// loses nothing that was acknowledged. The death of the host may.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <thread>

#include "ps/parameter_store.h"
#include "ps/records.h"

namespace tandem::ps {

// Thread-safe.
class Journal final : public ChangeLog {
 public:
  struct Options {
    // A new state is written when the log has at least this size and twice the size of the state.
    std::uint64_t compact_after_bytes = std::uint64_t{256} << 20;
  };

  // Restores `store` from the files in `directory`, which is created if it does not exist, and
  // journals its changes from then on. `store` must be empty and outlive the journal. Throws
  // DataLossError for damaged files.
  Journal(std::filesystem::path directory, ParameterStore& store, const Options& options);
  ~Journal() override;
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;

  void append(const proto::JournalRecord& record,
              std::vector<rpc::Attachment> attachments) override;
  // Writes a new state now.
  void compact();
  std::uint64_t generation() const;

 private:
  void restore();
  std::unique_ptr<RecordWriter> begin_log(std::uint64_t generation) const;
  void remove_before(std::uint64_t generation) const;
  void compact_when_large();
  std::filesystem::path file(const char* kind, std::uint64_t generation) const;

  const std::filesystem::path directory_;
  ParameterStore& store_;
  const Options options_;
  std::mutex compacting_;     // one state at a time
  mutable std::mutex mutex_;  // guards the following
  std::condition_variable grown_;
  std::unique_ptr<RecordWriter> log_;
  std::uint64_t generation_ = 0;  // of the log
  std::uint64_t state_bytes_ = 0;
  bool stopped_ = false;
  std::thread thread_;
};

}  // namespace tandem::ps
