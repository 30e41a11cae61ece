// Snapshots of what a parameter server holds, from which it continues after a restart.
//
//   snapshot-N    everything at one moment. The last two are kept
//   variable-ID   what the chief has assigned to variable ID since the older of them, or that it
//                 has removed it: these changes are rare, and on the disk before they are answered
//   closed        which calls have no effect any more, because the chief has reported their end
//
// Updates by workers since the newest snapshot are lost when the process is killed; their numbers
// say which (LostUpdates). Each file is written whole or not at all, and synced.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "ps/parameter_store.h"

namespace tandem::ps {

// Thread-safe.
class Snapshots {
 public:
  struct Options {
    std::chrono::milliseconds interval = std::chrono::seconds(30);
    std::uint64_t updates = 0;  // a snapshot also after so many updates; 0: by time alone
  };

  // Restores `store` from the newest snapshot in `directory` that is whole, and writes snapshots
  // from then on, unless nothing has changed. The directory must exist, and belong to this object;
  // `store` must be empty, and outlive it. Throws DataLossError if there are snapshots and all are
  // damaged.
  Snapshots(std::filesystem::path directory, ParameterStore& store, const Options& options);
  // Writes a last one, so that nothing is lost. REQUIRES: no call of the store is under way.
  ~Snapshots();
  Snapshots(const Snapshots&) = delete;
  Snapshots& operator=(const Snapshots&) = delete;

  // Writes one now. Throws as AtomicFile.
  void write();
  // No other process will continue: the last snapshot is not written.
  void end();

 private:
  // A state from which a restarted server may continue. Number 0: empty, and has no file.
  struct State {
    std::uint64_t number = 0, updates = 0, changes = 0;
  };

  static State state_of(std::uint64_t number, const proto::StateRecord::Counts& counts);
  void restore();
  void find_older(std::set<std::uint64_t> numbers, bool from_start);
  void restore_from(std::uint64_t number);
  void restore_changes(std::uint64_t after);
  void restore_closed();
  void keep(StateRecord record);
  void write_repeatedly();
  bool changed() const;
  void add(const State& state);
  void forget_oldest();
  void make_room(std::uint64_t bytes);
  std::filesystem::path file_of(std::uint64_t number) const;
  std::filesystem::path change_of(VariableId id) const;

  const std::filesystem::path directory_;
  ParameterStore& store_;
  const Options options_;
  std::mutex writing_;                        // one snapshot at a time
  mutable std::mutex files_;                  // guards the following
  std::vector<State> states_;                 // one or two, the oldest first
  std::uint64_t writing_bytes_ = 0;           // of the tensors of a snapshot that is being written
  std::map<VariableId, std::uint64_t> kept_;  // files of the chief's changes, and their numbers
  std::mutex mutex_;                          // guards the following
  std::condition_variable changed_;
  bool stopped_ = false, ended_ = false;
  std::thread thread_;
};

}  // namespace tandem::ps
