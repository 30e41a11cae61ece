// Programs of one graph, each for other sizes, devices or surroundings.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

#include "core/bytes.h"
#include "tensor/tensor_impl.h"

namespace tandem {

// Appends what a program depends on of a tensor that it is given.
inline void append_to_key(std::string& key, const Tensor& given) {
  const TensorImpl& impl = impl_of(given);
  ByteWriter out(key);
  out.add(impl.dtype, impl.shape.rank());
  for (const std::int64_t size : impl.shape.words()) out.add(size);
  out.add(reinterpret_cast<std::uintptr_t>(&impl.device()));
}

// At most kMaxPrograms programs by their keys. The least recently used one is evicted: a program in
// constant use is never made again. Not thread-safe.
template <class Program>
class ProgramCache {
 public:
  static constexpr std::size_t kMaxPrograms = 64;

  // Null if there is none; else valid until the program is evicted.
  Program* find(const std::string& key) {
    if (!last_ || last_->first != key) {
      const auto found = programs_.find(key);
      last_ = found == programs_.end() ? nullptr : &*found;
    }
    if (!last_) return nullptr;
    last_->second.last_use = ++uses_;
    return &last_->second.program;
  }

  // The program of the last call, if its key is this one and `rest` bytes more; else null.
  Program* last(const std::string& key, std::size_t rest) {
    if (!last_ || last_->first.size() != key.size() + rest || !last_->first.starts_with(key))
      return nullptr;
    last_->second.last_use = ++uses_;
    return &last_->second.program;
  }

  // Replaces the program of this key. Returns the one that was evicted.
  std::optional<Program> put(std::string key, Program program) {
    std::optional<Program> evicted;
    if (programs_.size() == kMaxPrograms && !programs_.contains(key)) {
      const auto oldest = std::min_element(
          programs_.begin(), programs_.end(),
          [](const auto& a, const auto& b) { return a.second.last_use < b.second.last_use; });
      evicted = std::move(oldest->second.program);
      programs_.erase(oldest);
    }
    Entry made{.program = std::move(program), .last_use = ++uses_};
    last_ = &*programs_.insert_or_assign(std::move(key), std::move(made)).first;
    return evicted;
  }

  template <class Predicate>
  void erase_if(Predicate&& predicate) {
    last_ = nullptr;
    std::erase_if(programs_, [&](const auto& entry) { return predicate(entry.second.program); });
  }
  template <class Predicate>
  bool any_of(Predicate&& predicate) const {
    return std::any_of(programs_.begin(), programs_.end(),
                       [&](const auto& entry) { return predicate(entry.second.program); });
  }

 private:
  struct Entry {
    Program program;
    std::uint64_t last_use = 0;
  };

  std::unordered_map<std::string, Entry> programs_;
  std::pair<const std::string, Entry>* last_ = nullptr;  // the program of the last call
  std::uint64_t uses_ = 0;
};

}  // namespace tandem
