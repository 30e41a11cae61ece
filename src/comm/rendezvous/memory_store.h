// A store for threads of one process.
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>

#include "comm/rendezvous/key_values.h"
#include "comm/store.h"

namespace tandem {

class MemoryStore final : public Store {
 public:
  void set(const std::string& key, std::string_view value) override;
  std::string get(const std::string& key, TimePoint deadline) override;
  std::int64_t add(const std::string& key, std::int64_t delta) override;
  bool remove(const std::string& key) override;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  KeyValues values_;
};

}  // namespace tandem
