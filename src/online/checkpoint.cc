// Restart: states of learners and windows in files, or as bytes.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <charconv>

#include "core/status.h"
#include "online/learner.h"
#include "online/window.h"
#include "tandem/checkpoint.h"
#include "tandem/random.h"
#include "train/checkpoint/safetensors.h"

namespace tandem::online {
namespace {

namespace fs = std::filesystem;
using State = std::map<std::string, Tensor>;

constexpr const char *kRandom = "random", *kRanks = "ranks", *kPrefix = "cycle-", *kOld = ".old",
                     *kTemporary = ".tmp";

void add(State& all, const std::string& prefix, const State& state) {
  for (const auto& [name, tensor] : state) all[prefix + name] = tensor;
}

State part_of(const State& all, const std::string& prefix) {
  State state;
  for (auto at = all.lower_bound(prefix); at != all.end() && at->first.starts_with(prefix); ++at)
    state[at->first.substr(prefix.size())] = at->second;
  return state;
}

std::string learner_prefix(std::size_t i) { return fmt::format("learner {}/", i); }
std::string window_prefix(std::size_t i) { return fmt::format("window {}/", i); }

Tensor random_state() {
  const random::GeneratorState state = random::get_state();
  return constant(std::vector<std::int64_t>{std::bit_cast<std::int64_t>(state.seed),
                                            std::bit_cast<std::int64_t>(state.offset)});
}

void restore_random(const State& state) {
  const auto found = state.find(kRandom);
  if (found == state.end() || found->second.dtype() != int64 || found->second.shape() != Shape{2})
    throw DataLossError("[checkpoint] expected the state of random numbers, got other tensors");
  const std::vector<std::int64_t> words = found->second.to_vector<std::int64_t>();
  random::set_state({.seed = std::bit_cast<std::uint64_t>(words[0]),
                     .offset = std::bit_cast<std::uint64_t>(words[1])});
}

// --- files ---

std::string folder_name(std::int64_t cycle) { return fmt::format("{}{:012}", kPrefix, cycle); }
std::string file_name(int rank) { return fmt::format("rank-{}.safetensors", rank); }

void sync_folder(const fs::path& folder) {
  const int descriptor = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return;
  fsync(descriptor);  // some file systems cannot
  close(descriptor);
}

// Runs file operations. Throws ResourceExhaustedError that names the path.
template <class F>
auto on_disk(const char* what, const F& operation) {
  try {
    return operation();
  } catch (const fs::filesystem_error& error) {
    fail<ResourceExhaustedError>("[{}] {}", what, error.what());
  }
}

// The cycles in `directory`, the newest first.
std::vector<std::int64_t> cycles_in(const fs::path& directory) {
  std::vector<std::int64_t> cycles;
  std::error_code none;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory, none)) {
    std::string name = entry.path().filename().string();
    if (!name.starts_with(kPrefix)) continue;
    name.erase(0, std::string_view(kPrefix).size());
    if (name.ends_with(kOld)) name.resize(name.size() - std::string_view(kOld).size());
    std::int64_t cycle = 0;
    const char* end = name.data() + name.size();
    if (const auto read = std::from_chars(name.data(), end, cycle); read.ptr == end)
      cycles.push_back(cycle);
  }
  std::ranges::sort(cycles, std::greater());
  cycles.erase(std::unique(cycles.begin(), cycles.end()), cycles.end());
  return cycles;
}

// Where the checkpoint of a cycle is: the one before, if writing it again has ended too early.
fs::path folder_of(const fs::path& directory, std::int64_t cycle) {
  const fs::path folder = directory / folder_name(cycle);
  const fs::path old = folder.string() + kOld;
  return !fs::exists(folder) && fs::exists(old) ? old : folder;
}

struct Ranks {
  std::optional<comm::ProcessGroup> group;
  int rank = 0, size = 1;
};

// The ranks of all learners.
Ranks ranks_of(const char* what, const std::vector<Learner>& learners) {
  if (learners.empty()) fail<InvalidArgumentError>("[{}] expected at least one learner", what);
  Ranks ranks{.group = learners[0].impl()->group()};
  for (const Learner& learner : learners) {
    const auto& group = learner.impl()->group();
    if (group.has_value() != ranks.group.has_value() ||
        (group && group->impl() != ranks.group->impl()))
      fail<InvalidArgumentError>("[{}] expected learners of one group", what);
  }
  if (ranks.group) {
    ranks.rank = ranks.group->rank();
    ranks.size = ranks.group->size();
  }
  return ranks;
}

void expect_untrained(const char* what, const std::vector<Learner>& learners,
                      const std::vector<Window>& windows) {
  for (const Learner& learner : learners) learner.impl()->expect_untrained(what);
  for (const Window& window : windows) window.impl()->expect_untrained(what);
}

// Rank 0 alone.
void publish(const fs::path& temporary, const fs::path& folder, int keep) {
  const fs::path old = folder.string() + kOld, directory = folder.parent_path();
  sync_folder(temporary);
  if (fs::exists(folder)) {
    fs::remove_all(old);
    fs::rename(folder, old);
  }
  fs::rename(temporary, folder);
  sync_folder(directory);
  fs::remove_all(old);
  for (const fs::directory_entry& entry : fs::directory_iterator(directory))
    if (const std::string name = entry.path().filename().string();
        name.starts_with(kPrefix) && name.ends_with(kTemporary))
      fs::remove_all(entry.path());  // of a process that was killed
  const std::vector<std::int64_t> cycles = cycles_in(directory);
  for (std::size_t i = static_cast<std::size_t>(keep); i < cycles.size(); ++i)
    fs::remove_all(folder_of(directory, cycles[i]));
}

TensorFile file_of(const Ranks& ranks, const std::vector<Learner>& learners,
                   const std::vector<Window>& windows) {
  TensorFile file;
  file.metadata[kRanks] = std::to_string(ranks.size);
  file.tensors[kRandom] = random_state();
  for (std::size_t i = 0; ranks.rank == 0 && i < learners.size(); ++i)
    add(file.tensors, learner_prefix(i), learners[i].impl()->state());
  for (std::size_t i = 0; i < windows.size(); ++i)
    add(file.tensors, window_prefix(i), windows[i].impl()->state());
  return file;
}

int ranks_in(const TensorFile& file, const fs::path& folder) {
  const auto found = file.metadata.find(kRanks);
  int ranks = 0;
  if (found != file.metadata.end())
    std::from_chars(found->second.data(), found->second.data() + found->second.size(), ranks);
  if (ranks < 1)
    fail<DataLossError>("[read_checkpoint] '{}' does not say how many ranks wrote it",
                        folder.string());
  return ranks;
}

// A checkpoint in memory: the files that a rank needs.
struct Loaded {
  TensorFile first;                // of rank 0: the learners
  std::vector<TensorFile> others;  // with the windows: this rank's alone, if the ranks are as many
  int ranks = 0;
};

Loaded load(const fs::path& folder, const Ranks& ranks) {
  const auto read = [&](int rank) {
    try {
      return load_safetensors(folder / file_name(rank));
    } catch (const NotFoundError& error) {
      throw DataLossError(error.what());  // of a folder that is there
    }
  };
  if (!fs::exists(folder))
    fail<NotFoundError>("[read_checkpoint] there is no checkpoint '{}'", folder.string());
  Loaded loaded;
  loaded.first = read(0);
  loaded.ranks = ranks_in(loaded.first, folder);
  if (loaded.ranks == ranks.size) {
    loaded.others.push_back(read(ranks.rank));
  } else {
    for (int rank = 0; rank < loaded.ranks; ++rank) loaded.others.push_back(read(rank));
  }
  return loaded;
}

void restore(const Loaded& loaded, const Ranks& ranks, const std::string& source,
             const std::vector<Learner>& learners, const std::vector<Window>& windows) {
  for (std::size_t i = 0; i < learners.size(); ++i)
    learners[i].impl()->restore(part_of(loaded.first.tensors, learner_prefix(i)), "read_checkpoint",
                                source);
  for (std::size_t i = 0; i < windows.size(); ++i) {
    std::vector<State> states;
    for (const TensorFile& file : loaded.others)
      states.push_back(part_of(file.tensors, window_prefix(i)));
    if (loaded.ranks == ranks.size)
      windows[i].impl()->restore(states.front());
    else
      windows[i].impl()->deal(states, ranks.rank, ranks.size);
  }
  const std::size_t last = loaded.others.size() - 1;
  restore_random(loaded.others[std::min(static_cast<std::size_t>(ranks.rank), last)].tensors);
}

// Gives back the states of before, unless all ranks have succeeded.
class Before {
 public:
  Before(const std::vector<Learner>& learners, const std::vector<Window>& windows)
      : learners_(learners), windows_(windows), random_(random::get_state()) {
    for (const Learner& learner : learners) of_learners_.push_back(learner.impl()->state());
    for (const Window& window : windows) of_windows_.push_back(window.impl()->state());
  }
  void give_back() const {
    for (std::size_t i = 0; i < learners_.size(); ++i)
      learners_[i].impl()->restore(of_learners_[i], "read_checkpoint", "the state of before");
    for (std::size_t i = 0; i < windows_.size(); ++i) windows_[i].impl()->restore(of_windows_[i]);
    random::set_state(random_);
  }

 private:
  const std::vector<Learner>& learners_;
  const std::vector<Window>& windows_;
  std::vector<State> of_learners_, of_windows_;
  random::GeneratorState random_;
};

// The newest cycle in `directory` before this one, which was damaged unless there is none.
std::int64_t newest_before(const fs::path& directory, std::optional<std::int64_t> cycle) {
  for (const std::int64_t each : cycles_in(directory))
    if (!cycle || each < *cycle) return each;
  if (cycle)
    fail<DataLossError>("[read_checkpoint] all checkpoints in '{}' are damaged",
                        directory.string());
  fail<NotFoundError>("[read_checkpoint] there is no checkpoint in '{}'", directory.string());
}

}  // namespace

void write_checkpoint(const fs::path& directory, std::int64_t cycle,
                      const std::vector<Learner>& learners, const std::vector<Window>& windows,
                      const CycleOptions& options) {
  constexpr const char* kWhat = "write_checkpoint";
  const Ranks ranks = ranks_of(kWhat, learners);
  const fs::path folder = directory / folder_name(std::max<std::int64_t>(cycle, 0));
  const fs::path temporary = folder.string() + kTemporary;
  const auto all = exchange(ranks.group, kWhat, 1, [&] {
    expect_untrained(kWhat, learners, windows);
    if (cycle < 0 || options.keep < 1)
      fail<InvalidArgumentError>(
          "[{}] expected a cycle of at least 0 and to keep at least 1 checkpoint, got {} and {}",
          kWhat, cycle, options.keep);
    if (ranks.rank == 0)
      on_disk(kWhat, [&] {
        fs::create_directories(directory);
        fs::remove_all(temporary);
        fs::create_directory(temporary);
      });
    return std::vector<double>{static_cast<double>(cycle)};
  });
  for (std::size_t rank = 1; rank < all.size(); ++rank)
    if (all[rank] != all[0])
      fail<InvalidArgumentError>(
          "[{}] expected one cycle on all ranks, got {} on rank 0 and {} on "
          "rank {}",
          kWhat, all[0][0], all[rank][0], rank);
  exchange(ranks.group, kWhat, 0, [&] {
    save_safetensors(temporary / file_name(ranks.rank), file_of(ranks, learners, windows));
    return std::vector<double>();
  });
  exchange(ranks.group, kWhat, 0, [&] {
    if (ranks.rank == 0) on_disk(kWhat, [&] { publish(temporary, folder, options.keep); });
    return std::vector<double>();
  });
}

std::int64_t read_checkpoint(const fs::path& directory, std::int64_t cycle,
                             const std::vector<Learner>& learners,
                             const std::vector<Window>& windows) {
  constexpr const char* kWhat = "read_checkpoint";
  const Ranks ranks = ranks_of(kWhat, learners);
  exchange(ranks.group, kWhat, 0, [&] {
    expect_untrained(kWhat, learners, windows);
    if (cycle < -1)
      fail<InvalidArgumentError>("[{}] expected a cycle of at least 0, or -1; got {}", kWhat,
                                 cycle);
    return std::vector<double>();
  });
  Loaded loaded;
  std::optional<std::int64_t> damaged;
  std::int64_t chosen = cycle;
  for (;;) {
    const auto choice = exchange(ranks.group, kWhat, 1, [&] {
      if (cycle < 0 && ranks.rank == 0) chosen = newest_before(directory, damaged);
      return std::vector<double>{static_cast<double>(chosen)};
    });
    chosen = static_cast<std::int64_t>(choice[0][0]);
    try {
      exchange(ranks.group, kWhat, 0, [&] {
        loaded = load(folder_of(directory, chosen), ranks);
        return std::vector<double>();
      });
      break;
    } catch (const DataLossError&) {
      if (choice[0][0] == static_cast<double>(cycle)) throw;
      damaged = chosen;
    }
  }
  const Before before(learners, windows);
  try {
    exchange(ranks.group, kWhat, 0, [&] {
      restore(loaded, ranks, folder_of(directory, chosen).string(), learners, windows);
      return std::vector<double>();
    });
  } catch (...) {
    before.give_back();
    throw;
  }
  return chosen;
}

std::string state_bytes(const Learner* learner, const Window* window) {
  TensorFile file;
  file.tensors[kRandom] = random_state();
  if (learner) add(file.tensors, learner_prefix(0), learner->state());
  if (window) add(file.tensors, window_prefix(0), window->state());
  return safetensors_bytes(file, "the state");
}

void restore_bytes(const Learner* learner, const Window* window, const std::string& bytes) {
  const State all = parse_safetensors(bytes, "the state").tensors;
  if (window && !learner) {
    window->restore(part_of(all, window_prefix(0)));
    return restore_random(all);
  }
  // All or nothing: what can fail last cannot fail any more.
  const State before = window ? window->state() : State();
  if (window) window->restore(part_of(all, window_prefix(0)));
  try {
    if (learner) learner->restore(part_of(all, learner_prefix(0)));
    restore_random(all);
  } catch (...) {
    if (window) window->restore(before);
    throw;
  }
}

}  // namespace tandem::online
