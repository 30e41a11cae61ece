// A store that continues from snapshots, in processes one after another.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <set>
#include <string>

#include "ps/in_process.h"
#include "ps/snapshots.h"
#include "support/files.h"
#include "support/tensors.h"

namespace tandem::ps::testing {

inline ParameterStore::Applied add(ParameterStore& store, std::uint64_t closure, double value = 1) {
  const Tensor input = full({2}, value);
  return store.apply(0, 0, closure, {&input, 1}, {});
}

inline double value_of(const ParameterStore& store, VariableId id = 3) {
  return store.read(id).value.to_vector<float>()[0];
}

class SnapshotFiles : public ::testing::Test {
 protected:
  // A store, as a new process would have it.
  struct Process {
    explicit Process(const std::filesystem::path& folder,
                     const Snapshots::Options& options = {std::chrono::hours(1)})
        : snapshots((std::filesystem::create_directories(folder), folder), store, options) {}
    // Its end is that of a process that was killed.
    void kill() { snapshots.end(); }
    // Variable 3 and its update.
    void begin(const proto::Part& part) {
      store.create(3, "v", zeros({2}));
      store.add_update(0, 0, part);
    }
    ParameterStore store;
    Snapshots snapshots;
  };

  std::filesystem::path folder() const { return folder_.path() / "ps-0"; }
  std::filesystem::path file(int number) const {
    return folder() / fmt::format("snapshot-{}", number);
  }
  std::set<std::string> files() const {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder()))
      names.insert(entry.path().filename());
    return names;
  }
  // Two snapshots, with 2 and 5 updates, and 6 updates.
  void write_two() const {
    Process process(folder());
    process.begin(assign_add());
    for (std::uint64_t closure = 0; closure < 6; ++closure) {
      if (closure == 2 || closure == 5) process.snapshots.write();
      add(process.store, closure);
    }
    process.kill();
  }

 private:
  tandem::testing::TemporaryDirectory folder_;
};

}  // namespace tandem::ps::testing
